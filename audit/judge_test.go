package audit

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world is what the topic, the group and the database have. It judges itself by maps, id after id, as nobody could who
// must not have all in memory.
type world struct {
	committed map[int32]int64
	keep      time.Duration
	now       time.Time
	effects   bool // they are asked for
	facts     []fact
	placed    map[int32]map[int64]bool
}

func (w *world) rules() rules {
	return rules{
		committed: w.committed, effects: w.effects, keep: w.keep, now: w.now, examples: -1,
		placed: func(f *fact) bool { return w.placed[f.partition][f.offset] },
	}
}

// judged sorts the facts as an audit does, and judges.
func (w *world) judged(t testing.TB, facts []fact, limit int) *Report {
	t.Helper()
	s, j := newSorter(t.TempDir(), limit), &judge{rules: w.rules(), report: newReport()}
	for i := range facts {
		if err := s.add(facts[i].id, facts[i].append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.each(taking(j.take)); err != nil {
		t.Fatal(err)
	}
	j.end()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return j.report
}

// taking decodes facts for f.
func taking(f func(fact) error) func(id, rest []byte) error {
	return func(id, rest []byte) error {
		decoded, err := decodeFact(id, rest)
		if err != nil {
			return err
		}
		return f(decoded)
	}
}

// expected says of each id which kinds are to be found, by the words of the kinds.
func (w *world) expected() map[Kind][]string {
	found := map[Kind][]string{}
	by := map[string]map[factKind][]fact{}
	for _, f := range w.facts {
		if by[f.id] == nil {
			by[f.id] = map[factKind][]fact{}
		}
		by[f.id][f.kind] = append(by[f.id][f.kind], f)
	}
	for _, id := range slices.Sorted(maps.Keys(by)) {
		for kind, is := range w.of(by[id]) {
			if is {
				found[kind] = append(found[kind], id)
			}
		}
	}
	return found
}

//nolint:gocyclo // the words of the kinds, as they stand in their comments
func (w *world) of(facts map[factKind][]fact) map[Kind]bool {
	has := func(kind factKind) bool { return len(facts[kind]) > 0 }
	messages := facts[factMessage]
	every := func(is func(fact) bool) bool {
		return !slices.ContainsFunc(messages, func(f fact) bool { return !is(f) })
	}
	isBehind := func(f fact) bool {
		committed, ok := w.committed[f.partition]
		return ok && f.offset < committed
	}
	placed := slices.ContainsFunc(messages, func(f fact) bool { return w.placed[f.partition][f.offset] })
	old := w.keep > 0 && (!every(func(f fact) bool { return f.flags&flagUntimed == 0 }) ||
		every(func(f fact) bool { return f.millis < w.now.Add(-w.keep).UnixMilli() }))
	values := map[[16]byte]bool{}
	for _, f := range messages {
		values[f.value] = true
	}
	excused := has(factRecord) || has(factDead) || placed
	noID := len(messages) > 0 && messages[0].flags&flagNoID != 0
	foreign := every(func(f fact) bool { return f.flags&flagForeign != 0 })
	in := len(messages) > 0
	return map[Kind]bool{
		Lost: in && !excused && !has(factHandOn) && !has(factReturns) && !has(factEffect) && !old && !foreign &&
			every(isBehind),
		DoubledEffects: len(facts[factEffect]) > 1,
		EffectsWithoutRecord: has(factEffect) && !has(factRecord) &&
			(in && !excused && !old || !in && w.keep == 0),
		RecordsWithoutEffect: in && w.effects && has(factRecord) && has(factBefore) && !has(factEffect) && !has(factDead) &&
			!noID && !foreign &&
			!has(factReturns) && every(isBehind),
		DifferentValues: in && !noID && len(values) > 1,
		Repeated:        in && !noID && len(values) == 1 && len(messages) > 1,
		WithoutID:       noID,
	}
}

func drawWorld(t *rapid.T) *world {
	w := &world{now: time.UnixMilli(1_000_000), committed: map[int32]int64{},
		placed: map[int32]map[int64]bool{0: {}, 1: {}, 2: {}}}
	w.effects = rapid.Bool().Draw(t, "effects")
	if rapid.Bool().Draw(t, "kept for ever") {
		w.keep = 0
	} else {
		w.keep = 500 * time.Second
	}
	for p := range int32(2) { // partition 2 has no committed offset
		w.committed[p] = int64(rapid.IntRange(0, 12).Draw(t, "committed"))
	}
	next := map[int32]int64{}
	for n := range rapid.IntRange(0, 12).Draw(t, "ids") {
		id := fmt.Sprintf("e%02d", n)
		noID := rapid.IntRange(0, 5).Draw(t, "no id") == 0
		copies := rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3}).Draw(t, "copies")
		if noID {
			copies = 1
		}
		for range copies {
			p := int32(rapid.IntRange(0, 2).Draw(t, "partition"))
			f := fact{id: id, kind: factMessage, partition: p, offset: next[p],
				millis: int64(rapid.IntRange(1, 1_000_000).Draw(t, "time"))}
			f.value[0] = byte(rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(t, "value"))
			if noID {
				f.flags |= flagNoID
			}
			if rapid.IntRange(0, 3).Draw(t, "foreign") == 0 {
				f.flags |= flagForeign
			}
			if rapid.IntRange(0, 9).Draw(t, "untimed") == 0 {
				f.flags |= flagUntimed
				f.millis = 0
			}
			if rapid.IntRange(0, 9).Draw(t, "placed") == 0 {
				w.placed[p][f.offset] = true
			}
			next[p]++
			w.facts = append(w.facts, f)
		}
		for _, kind := range []factKind{factEffect, factEffect, factDead, factBefore, factRecord, factHandOn, factReturns} {
			if (kind != factEffect || w.effects) && rapid.IntRange(0, 2).Draw(t, "has") == 0 {
				w.facts = append(w.facts, fact{id: id, kind: kind})
			}
		}
	}
	return w
}

// What is found is what the words say, whatever there is, in whatever order it was read, and however little fits into
// memory. Every event has one fate.
func TestJudgeFindsWhatTheWordsSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		shuffled := slices.Clone(w.facts)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0)).Shuffle(len(shuffled), func(i, j int) {
			shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
		})
		limit := rapid.SampledFrom([]int{1, 200, 1 << 20}).Draw(rt, "memory")
		r, want := w.judged(t, shuffled, limit), w.expected()
		for kind, found := range r.Found {
			var got []string
			for _, e := range found.Examples {
				id := e.Event
				if id == "" { // a message without one
					id = w.at(e.Places[0])
				}
				got = append(got, id)
			}
			if !slices.Equal(got, want[kind]) || found.Count != int64(len(got)) {
				rt.Errorf("%s: found %q, want %q", kind, got, want[kind])
			}
		}
		inWindow := int64(0)
		for _, id := range want[EffectsWithoutRecord] {
			if slices.ContainsFunc(w.facts, func(f fact) bool { return f.id == id && f.kind == factMessage }) {
				inWindow++
			}
		}
		if sum := r.Recorded + r.Dead + r.HandedOn + r.Filtered + r.TooOld + r.Undecided + r.Found[Lost].Count + inWindow; sum != r.Events {
			rt.Errorf("%d events have %d fates: %+v", r.Events, sum, r)
		}
	})
}

func (w *world) at(p Place) string {
	for _, f := range w.facts {
		if f.kind == factMessage && f.partition == p.Partition && f.offset == p.Offset {
			return f.id
		}
	}
	return "?"
}

// Facts come back as they were, in their order, from files and from memory.
func TestSorter(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		facts := rapid.SliceOf(rapid.Custom(func(t *rapid.T) fact {
			f := fact{
				id:        string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "id")),
				kind:      factKind(rapid.IntRange(0, int(factMessage)).Draw(t, "kind")),
				partition: rapid.Int32Min(0).Draw(t, "partition"), offset: rapid.Int64Min(0).Draw(t, "offset"),
				millis: rapid.Int64Min(0).Draw(t, "millis"), flags: rapid.Byte().Draw(t, "flags"),
			}
			f.value[3] = rapid.Byte().Draw(t, "value")
			return f
		})).Draw(rt, "facts")
		s := newSorter(t.TempDir(), rapid.SampledFrom([]int{1, 300, 1 << 20}).Draw(rt, "memory"))
		for i := range facts {
			if err := s.add(facts[i].id, facts[i].append(nil)); err != nil {
				rt.Fatal(err)
			}
		}
		var got []fact
		if err := s.each(taking(func(f fact) error { got = append(got, f); return nil })); err != nil {
			rt.Fatal(err)
		}
		slices.SortStableFunc(facts, func(a, b fact) int {
			return cmp.Or(strings.Compare(a.id, b.id), bytes.Compare(a.append(nil), b.append(nil)))
		})
		if !slices.Equal(got, facts) {
			rt.Errorf("%v\n%v", got, facts)
		}
		if !slices.IsSortedFunc(got, func(a, b fact) int {
			switch {
			case a.id != b.id && a.id < b.id, a.id == b.id && a.kind < b.kind:
				return -1
			case a.id != b.id, a.kind != b.kind:
				return 1
			}
			return 0
		}) {
			rt.Errorf("they are not in order: %v", got)
		}
		if err := s.close(); err != nil {
			rt.Fatal(err)
		}
	})
}
