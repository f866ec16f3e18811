package audit

import "time"

// outboxRules are what has to be known beside the rows and the messages.
type outboxRules struct {
	ends     map[int32]int64 // of the partitions, before the rows were read
	since    map[int32]int64 // from when on all of a partition was read, in milliseconds since 1970; no entry: all that ever was
	deleted  int64           // what is older may have been deleted from some partition
	unread   bool            // some of the window could not be read
	keep     time.Duration   // 0: rows can be deleted at any time
	read     time.Time       // when the rows had been read
	examples int             // of each kind; negative for all
}

// outboxJudge says what fits and what does not. It takes entries in their order, and knows one id at a time.
type outboxJudge struct {
	outboxRules
	report  *OutboxReport
	ordered func(key [16]byte, p *placed) error // takes the events of keys
	begun   bool
	id      outboxEvent
}

// outboxEvent is all that is known of an id.
type outboxEvent struct {
	id string

	rows      int64
	judged    int64 // of them PUBLISHED, and in the window
	published int64 // when the first of these was
	row       rowFact
	hasValue  bool
	value     [16]byte // of the rows, or else of the first message

	copies    int64
	first     sentFact
	own       sentFact // the first one that was sent when the row was there
	owned     bool
	scattered bool // they are in several partitions
	old       bool // at least one was there before the rows were read
	oldest    int64
	untimed   bool
	different bool
	differs   *Place // of the first message that does, if one does
}

// take takes the next entry.
func (j *outboxJudge) take(id, rest []byte) error {
	if len(rest) == 0 {
		return errDamaged
	}
	if !j.begun || string(id) != j.id.id {
		if err := j.end(); err != nil {
			return err
		}
		j.begun, j.id = true, outboxEvent{id: string(id)}
	}
	if rest[0] == isRow {
		r, err := decodeRow(id, rest)
		if err == nil {
			j.id.addRow(&r)
		}
		return err
	}
	s, err := decodeSent(id, rest)
	if err == nil {
		j.message(&s)
	}
	return err
}

func (e *outboxEvent) addRow(r *rowFact) {
	if e.rows == 0 {
		e.row = *r
	}
	e.rows++
	if r.judged {
		if e.judged == 0 || r.published < e.published {
			e.published = r.published
		}
		e.judged++
	}
	if !r.hasValue {
		return
	}
	e.different = e.different || e.hasValue && r.value != e.value
	e.hasValue, e.value = true, r.value
}

func (j *outboxJudge) message(s *sentFact) {
	e := &j.id
	if e.copies == 0 {
		e.first = *s
	}
	e.copies++
	e.scattered = e.scattered || s.partition != e.first.partition
	e.old = e.old || s.offset < j.ends[s.partition]
	if untimed := s.flags&flagUntimed != 0; untimed {
		e.untimed = true
	} else if e.oldest == 0 || s.millis < e.oldest {
		e.oldest = s.millis
	}
	if !e.owned && e.rows > 0 && s.flags&flagUntimed == 0 && s.millis >= e.row.created {
		e.owned, e.own = true, *s
	}
	switch {
	case !e.hasValue:
		e.hasValue, e.value = true, s.value
	case s.value != e.value && e.differs == nil:
		at := s.place()
		e.different, e.differs = true, &at
	}
}

// end judges the id that all has been said about.
func (j *outboxJudge) end() error {
	if !j.begun {
		return nil
	}
	e, r := &j.id, j.report
	r.Messages += e.copies
	if e.copies > 0 {
		r.Events++
	}
	noID := e.copies > 0 && e.first.flags&flagNoID != 0
	switch {
	case noID:
		j.find(WithoutID)
		return nil
	case e.different && e.copies > 0:
		j.find(DifferentValues)
	case e.copies > max(e.rows, 1):
		j.find(Repeated)
	}
	if e.rows == 0 {
		j.unknown()
		return nil
	}
	j.published()
	return j.order()
}

// unknown judges an event that no row has.
func (j *outboxJudge) unknown() {
	e, r := &j.id, j.report
	switch {
	case !e.old:
		r.New++
	case j.keep == 0 || e.untimed || e.oldest < j.read.Add(leeway-j.keep).UnixMilli():
		r.Swept++
	default:
		j.find(WithoutRow)
	}
}

// published judges the rows that say that they were sent.
func (j *outboxJudge) published() {
	e, r := &j.id, j.report
	sent := min(e.copies, e.judged)
	r.Sent += sent
	switch missing := e.judged - sent; {
	case missing == 0:
	case j.unread:
		r.Undecided += missing
	case j.deleted > 0 && e.published < j.deleted+leeway.Milliseconds():
		r.Deleted += missing
	default:
		j.find(Missing)
	}
}

// order hands on where the event of a key stands first. An id with several rows, or in several partitions, has no
// place, and neither has one that may stand before what was read. What stands there since before the row was written is
// another producer's.
func (j *outboxJudge) order() error {
	e := &j.id
	if e.copies == 1 && e.judged == 1 {
		e.owned, e.own = true, e.first
	}
	if e.rows != 1 || !e.row.hasKey || !e.owned || e.scattered {
		return nil
	}
	if since, ok := j.since[e.own.partition]; ok && e.row.created < since+leeway.Milliseconds() {
		return nil
	}
	return j.ordered(e.row.key, &placed{partition: e.own.partition, offset: e.own.offset, number: e.row.number, id: e.id})
}

func (j *outboxJudge) find(kind Kind) {
	j.report.Found.add(kind, j.examples, func() Example {
		e := &j.id
		x := Example{Event: e.id, Places: []Place{}}
		if e.copies > 0 {
			x.Places = append(x.Places, e.first.place())
			if e.first.flags&flagNoID != 0 {
				x.Event = ""
			}
		}
		if e.copies > 1 {
			x.Times = e.copies
		}
		if first := e.first.place(); kind == DifferentValues && e.differs != nil && !samePlace(*e.differs, first) {
			x.Places = append(x.Places, *e.differs)
		}
		return x
	})
}

func samePlace(a, b Place) bool { return a.Partition == b.Partition && a.Offset == b.Offset }

// orderJudge takes the events of keys, in the order of the keys and then of the topic.
type orderJudge struct {
	report   *OutboxReport
	examples int

	begun     bool
	key       string
	partition int32
	last      placed // the one with the highest number so far
}

func (j *orderJudge) take(key, rest []byte) error {
	p, err := decodePlaced(rest)
	if err != nil {
		return err
	}
	if !j.begun || string(key) != j.key || p.partition != j.partition {
		j.begun, j.key, j.partition, j.last = true, string(key), p.partition, p
		return nil
	}
	if p.number < j.last.number {
		j.report.Found.add(OutOfOrder, j.examples, func() Example {
			return Example{Event: p.id, Places: []Place{p.place(), j.last.place()}}
		})
		return nil
	}
	j.last = p
	return nil
}
