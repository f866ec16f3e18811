package audit

import (
	"time"
)

// rules are what a judge has to know beside the facts.
type rules struct {
	committed map[int32]int64 // by the group, before anything else was read; a partition without an entry has none
	effects   bool            // they were asked for
	keep      time.Duration   // 0: records are kept for ever
	now       time.Time       // at which the last record was read
	examples  int             // of each kind; negative for all

	placed func(*fact) bool // reports whether a dead letter is recorded at the message's place
}

// judge says what fits and what does not. It takes facts in their order, see compareFacts, and knows one id at a time.
type judge struct {
	rules
	report *Report
	begun  bool
	id     subject
}

// subject is all that is known of an id.
type subject struct {
	id      string
	effects int64
	dead    bool
	before  bool // it was recorded before the effects were read
	record  bool
	handOn  bool
	returns bool

	messages  int64
	first     fact // of the messages
	differs   fact // the first one whose value is another than that of the first
	different bool
	foreign   bool // all are
	open      bool // at least one is not behind the committed offset
	newest    int64
	untimed   bool // at least one
	placed    bool // at the place of one of them a dead letter is recorded
}

// take takes the next fact.
func (j *judge) take(f fact) error {
	if !j.begun || f.id != j.id.id {
		j.end()
		j.begun, j.id = true, subject{id: f.id}
	}
	s := &j.id
	switch f.kind {
	case factEffect:
		s.effects++
		j.report.Effects++
	case factDead:
		s.dead = true
	case factBefore:
		s.before = true
	case factRecord:
		s.record = true
		j.report.Records++
	case factHandOn:
		s.handOn = true
	case factReturns:
		s.returns = true
	case factMessage:
		j.message(f)
	}
	return nil
}

func (j *judge) message(f fact) {
	s := &j.id
	foreign := f.flags&flagForeign != 0
	switch {
	case s.messages == 0:
		s.first, s.foreign = f, foreign
	case f.value != s.first.value && !s.different:
		s.differs, s.different = f, true
	}
	s.messages++
	s.foreign = s.foreign && foreign
	committed, ok := j.committed[f.partition]
	s.open = s.open || !ok || f.offset >= committed
	s.newest = max(s.newest, f.millis)
	s.untimed = s.untimed || f.flags&flagUntimed != 0
	if !s.record && !s.placed && j.placed != nil {
		s.placed = j.placed(&f)
	}
}

// end judges the id that all has been said about.
func (j *judge) end() {
	if !j.begun {
		return
	}
	s := &j.id
	if s.effects > 1 {
		j.find(DoubledEffects)
	}
	if s.messages == 0 {
		j.outside()
		return
	}
	j.report.Messages += s.messages
	j.report.Events++
	j.copies()
	j.fate()
}

// outside judges what is not in the window.
func (j *judge) outside() {
	switch s := &j.id; {
	case s.effects == 0 || s.record:
	case j.keep > 0:
		j.report.Unjudged++
	default:
		j.find(EffectsWithoutRecord)
	}
}

// copies says what the topic has under the id.
func (j *judge) copies() {
	s := &j.id
	switch {
	case s.first.flags&flagNoID != 0:
		j.find(WithoutID)
	case s.different:
		j.find(DifferentValues)
	case s.messages > 1:
		j.find(Repeated)
	}
}

// fate says what became of the event.
func (j *judge) fate() {
	r, s := j.report, &j.id
	switch {
	case s.record:
		j.recorded()
	case s.dead, s.placed:
		r.Dead++
	case s.effects > 0 && !j.tooOld():
		j.find(EffectsWithoutRecord)
	case s.handOn:
		r.HandedOn++
	case s.foreign:
		r.Filtered++
	case s.open, s.returns:
		r.Undecided++
	case j.tooOld():
		r.TooOld++
	default:
		j.find(Lost)
	}
}

// recorded judges an event that is. If it was before the effects were read, its effect was there to be read, or a dead
// letter. One that is delivered again now may have been a dead letter that was redriven. The record of a message
// without an id is one of a dead letter.
func (j *judge) recorded() {
	s := &j.id
	if s.dead || s.first.flags&flagNoID != 0 {
		j.report.Dead++
		return
	}
	j.report.Recorded++
	if j.effects && s.effects == 0 && s.before && !s.foreign && !s.open && !s.returns {
		j.find(RecordsWithoutEffect)
	}
}

// tooOld reports whether the record may have been deleted because of its age. Of a message without a time nobody knows.
func (j *judge) tooOld() bool {
	return j.keep > 0 && (j.id.untimed || j.id.newest < j.now.Add(-j.keep).UnixMilli())
}

func (j *judge) find(kind Kind) {
	j.report.Found.add(kind, j.examples, func() Example {
		s := &j.id
		e := Example{Event: s.id, Places: []Place{}}
		if s.messages > 0 {
			e.Places = append(e.Places, s.first.place())
			if s.first.flags&flagNoID != 0 {
				e.Event = ""
			}
		}
		switch {
		case kind == DoubledEffects:
			e.Times = s.effects
		case s.messages > 1:
			e.Times = s.messages
		}
		if kind == DifferentValues {
			e.Places = append(e.Places, s.differs.place())
		}
		return e
	})
}

func (f *fact) place() Place { return placeAt(f.partition, f.offset, f.millis, f.flags) }

func placeAt(partition int32, offset, millis int64, flags byte) Place {
	p := Place{Partition: partition, Offset: offset}
	if flags&flagUntimed == 0 {
		p.Time = time.UnixMilli(millis).UTC()
	}
	return p
}
