package offsets

// minRing is the smallest size of a ring that is not empty: 512 bytes.
const minRing = 16

// entry is a message, with those behind it that are done and were merged into it.
type entry struct {
	offset   int64
	last     int64 // the offset of the last of them
	messages int   // itself included
	done     bool
}

// ring is a queue of entries in one slice, the length of which is zero or a power of two.
type ring struct {
	slots  []entry
	first  int // index in slots of the oldest entry
	len    int
	sparse int // pushes in a row that found three quarters of the slots empty
}

// at returns the i-th oldest entry.
func (r *ring) at(i int) *entry { return &r.slots[(r.first+i)&(len(r.slots)-1)] }

func (r *ring) push(e entry) {
	r.fit()
	r.len++
	*r.at(r.len - 1) = e
}

func (r *ring) pop() entry {
	e := *r.at(0)
	r.first = (r.first + 1) & (len(r.slots) - 1)
	r.len--
	return e
}

// merge adds each entry that is done to the open one before it. The first must be open.
func (r *ring) merge() {
	kept := 0
	for i := range r.len {
		e := *r.at(i)
		if !e.done {
			*r.at(kept) = e
			kept++
			continue
		}
		before := r.at(kept - 1)
		before.last = e.last
		before.messages += e.messages
	}
	r.len = kept
}

// fit makes room for one more entry, and gives half of the slots back once three quarters of them have been empty for a
// whole turn of the ring. The long wait keeps a queue that fills and drains again and again from allocating.
func (r *ring) fit() {
	switch {
	case r.len == len(r.slots):
		r.resize(max(minRing, 2*len(r.slots)))
	case r.len >= len(r.slots)/4 || len(r.slots) == minRing:
		r.sparse = 0
	case r.sparse >= len(r.slots):
		r.resize(len(r.slots) / 2)
	default:
		r.sparse++
	}
}

func (r *ring) resize(size int) {
	slots := make([]entry, size)
	for i := range r.len {
		slots[i] = *r.at(i)
	}
	r.slots, r.first, r.sparse = slots, 0, 0
}
