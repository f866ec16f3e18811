package audit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// sentWorld is what an outbox and its topic have. It judges itself by maps.
type sentWorld struct {
	outboxRules
	rows []rowFact
	sent []sentFact
}

// judged sorts all as an audit does, and judges.
func (w *sentWorld) judged(t testing.TB, shuffle func(n int, swap func(i, j int)), limit int) *OutboxReport {
	t.Helper()
	type entry struct {
		id   string
		rest []byte
	}
	var entries []entry
	for _, r := range w.rows {
		entries = append(entries, entry{r.id, r.append(nil)})
	}
	for _, s := range w.sent {
		entries = append(entries, entry{s.id, s.append(nil)})
	}
	shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	events, keys, report := newSorter(t.TempDir(), limit), newSorter(t.TempDir(), limit), newOutboxReport()
	for _, e := range entries {
		must(events.add(e.id, e.rest))
	}
	j := &outboxJudge{outboxRules: w.outboxRules, report: report, ordered: func(key [16]byte, p *placed) error {
		return keys.add(string(key[:]), p.append(nil))
	}}
	must(events.each(j.take))
	must(j.end())
	must(keys.each((&orderJudge{report: report, examples: w.examples}).take))
	must(events.close())
	must(keys.close())
	return report
}

// of is what is known of an id.
func (w *sentWorld) of(id string) (rows []rowFact, sent []sentFact) {
	for _, r := range w.rows {
		if r.id == id {
			rows = append(rows, r)
		}
	}
	for _, s := range w.sent {
		if s.id == id {
			sent = append(sent, s)
		}
	}
	return rows, sent
}

// expected says of each id which kinds are to be found, by the words of the kinds.
func (w *sentWorld) expected(ids []string) map[Kind][]string {
	found := map[Kind][]string{}
	for _, id := range ids {
		rows, sent := w.of(id)
		if len(sent) > 0 && sent[0].flags&flagNoID != 0 {
			found[WithoutID] = append(found[WithoutID], id)
			continue
		}
		values := map[[16]byte]bool{}
		marked, first := 0, int64(0)
		for _, r := range rows {
			if r.hasValue {
				values[r.value] = true
			}
			if r.judged {
				if marked == 0 || r.published < first {
					first = r.published
				}
				marked++
			}
		}
		before, oldest, untimed := false, int64(1<<62), false
		for _, s := range sent {
			values[s.value] = true
			before = before || s.offset < w.ends[s.partition]
			if untimed = untimed || s.flags&flagUntimed != 0; s.flags&flagUntimed == 0 {
				oldest = min(oldest, s.millis)
			}
		}
		kept := w.keep > 0 && !untimed && oldest >= w.read.Add(leeway-w.keep).UnixMilli()
		mayBeDeleted := w.deleted > 0 && first < w.deleted+leeway.Milliseconds()
		for kind, is := range map[Kind]bool{
			DifferentValues: len(sent) > 0 && len(values) > 1,
			Repeated:        len(values) <= 1 && len(sent) > max(1, len(rows)),
			WithoutRow:      len(rows) == 0 && len(sent) > 0 && before && kept,
			Missing:         marked > len(sent) && !w.unread && !mayBeDeleted,
			OutOfOrder:      w.late(id),
		} {
			if is {
				found[kind] = append(found[kind], id)
			}
		}
	}
	return found
}

// place is where an event stands for the order of its key.
func (w *sentWorld) place(id string) (key [16]byte, p placed, ok bool) {
	rows, sent := w.of(id)
	if len(rows) != 1 || !rows[0].hasKey || len(sent) == 0 {
		return key, p, false
	}
	slices.SortFunc(sent, func(a, b sentFact) int { return int(a.offset - b.offset) })
	own := slices.IndexFunc(sent, func(s sentFact) bool { return s.flags&flagUntimed == 0 && s.millis >= rows[0].created })
	if len(sent) == 1 && rows[0].judged {
		own = 0
	}
	if own < 0 || slices.ContainsFunc(sent, func(s sentFact) bool { return s.partition != sent[0].partition }) {
		return key, p, false
	}
	if since, some := w.since[sent[own].partition]; some && rows[0].created < since+leeway.Milliseconds() {
		return key, p, false
	}
	return rows[0].key, placed{partition: sent[own].partition, offset: sent[own].offset, number: rows[0].number}, true
}

// late reports whether one with a higher number of the key stands before the event.
func (w *sentWorld) late(id string) bool {
	key, at, ok := w.place(id)
	if !ok {
		return false
	}
	return slices.ContainsFunc(w.rows, func(r rowFact) bool {
		other, p, ok := w.place(r.id)
		return ok && r.id != id && other == key && p.partition == at.partition && p.offset < at.offset && p.number > at.number
	})
}

func drawSentWorld(t *rapid.T) (w *sentWorld, ids []string) {
	chance := func(label string, in int) bool { return rapid.IntRange(1, in).Draw(t, label) == 1 }
	minute := time.Minute.Milliseconds()
	moment := func(label string) int64 { return int64(rapid.IntRange(1, 100).Draw(t, label)) * minute }
	w = &sentWorld{outboxRules: outboxRules{ends: map[int32]int64{}, since: map[int32]int64{},
		read: time.UnixMilli(100 * minute), examples: -1}}
	for p := range int32(2) {
		w.ends[p] = int64(rapid.IntRange(0, 20).Draw(t, "end"))
		if chance("begins later", 3) {
			w.since[p] = moment("since")
		}
	}
	w.unread = chance("unread", 6)
	if chance("deleted", 4) {
		w.deleted = moment("deleted")
	}
	w.keep = time.Duration(rapid.SampledFrom([]int{0, 60, 200}).Draw(t, "keep")) * time.Minute
	next, number := map[int32]int64{}, int64(0)
	for n := range rapid.IntRange(0, 12).Draw(t, "ids") {
		id := fmt.Sprintf("e%02d", n)
		ids = append(ids, id)
		noID := chance("no id", 8)
		for range rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "rows") {
			if noID {
				break
			}
			number++
			r := rowFact{id: id, number: number, state: rowPublished, created: moment("created"), published: moment("published"),
				judged: !chance("other", 4)}
			if !r.judged {
				r.state = rapid.SampledFrom([]rowState{rowWaiting, rowBlocked, rowDead, rowPublished}).Draw(t, "state")
			}
			r.hasKey, r.hasValue = !chance("no key", 4), !chance("no value", 5)
			if r.hasKey {
				r.key[0] = byte(rapid.IntRange(0, 1).Draw(t, "key"))
			}
			if r.hasValue {
				r.value[0] = byte(rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "value"))
			}
			w.rows = append(w.rows, r)
		}
		copies := rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3}).Draw(t, "copies")
		if noID {
			copies = 1
		}
		for range copies {
			p := int32(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "partition"))
			next[p] += int64(rapid.IntRange(1, 3).Draw(t, "gap"))
			s := sentFact{id: id, partition: p, offset: next[p], millis: moment("time")}
			s.value[0] = byte(rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "value"))
			if chance("untimed", 9) {
				s.millis, s.flags = 0, flagUntimed
			}
			if noID {
				s.flags |= flagNoID
			}
			w.sent = append(w.sent, s)
		}
	}
	numbers := rapid.Permutation(upTo(len(w.rows))).Draw(t, "numbers") // any order of the rows beside that of the topic
	for i := range w.rows {
		w.rows[i].number = numbers[i]
	}
	return w, ids
}

func upTo(n int) (list []int64) {
	for i := range n {
		list = append(list, int64(i)+1)
	}
	return list
}

// What is found is what the words say, whatever there is, in whatever order it was read, and however little fits into
// memory. Each row that says that it was sent, and each event without a row, has one fate.
func TestOutboxJudgeFindsWhatTheWordsSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w, ids := drawSentWorld(rt)
		r := w.judged(t, rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)).Shuffle,
			rapid.SampledFrom([]int{1, 200, 1 << 20}).Draw(rt, "memory"))
		want := w.expected(ids)
		for kind, found := range r.Found {
			var got []string
			for _, e := range found.Examples {
				id := e.Event
				if kind == WithoutID {
					at := slices.IndexFunc(w.sent, func(s sentFact) bool {
						return s.partition == e.Places[0].Partition && s.offset == e.Places[0].Offset
					})
					id = w.sent[at].id
				}
				got = append(got, id)
			}
			slices.Sort(got) // those of OutOfOrder come by keys
			if !slices.Equal(got, want[kind]) || found.Count != int64(len(got)) {
				rt.Errorf("%s: found %q, want %q", kind, got, want[kind])
			}
		}
		var marked, unknown, missing int64
		for _, row := range w.rows {
			if row.judged {
				marked++
			}
		}
		for _, id := range ids {
			rows, sent := w.of(id)
			if len(rows) == 0 && len(sent) > 0 {
				unknown++
			}
			if slices.Contains(want[Missing], id) {
				missing -= int64(len(sent))
				for _, row := range rows {
					if row.judged {
						missing++
					}
				}
			}
		}
		if sum := r.Sent + r.Deleted + r.Undecided + missing; sum != marked {
			rt.Errorf("%d rows say that they were sent, %d have a fate: %+v", marked, sum, r)
		}
		if sum := r.Swept + r.New + r.Found[WithoutRow].Count + r.Found[WithoutID].Count; sum != unknown {
			rt.Errorf("%d events have no row, %d have a fate: %+v", unknown, sum, r)
		}
	})
}
