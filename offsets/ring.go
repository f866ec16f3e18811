package offsets

// minRing is the smallest size of a ring that is not empty: 256 bytes.
const minRing = 16

type entry struct {
	offset int64
	done   bool
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

func (r *ring) push(offset int64) {
	r.fit()
	r.len++
	*r.at(r.len - 1) = entry{offset: offset}
}

func (r *ring) pop() entry {
	e := *r.at(0)
	r.first = (r.first + 1) & (len(r.slots) - 1)
	r.len--
	return e
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
