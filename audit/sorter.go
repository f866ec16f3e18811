package audit

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

const (
	sortBytes  = 48 << 20 // that are sorted in memory; what is more goes to files
	mergeBytes = 64 << 10 // that are read ahead in each file

	headLength   = 8       // bytes before each entry: the lengths of its id and of the rest
	maxEntrySize = 1 << 20 // more than an id in any database is long
)

var errDamaged = errors.New("a sorted file of the audit is damaged")

// idOf and restOf are the parts of an entry.
func idOf(entry []byte) []byte {
	return entry[headLength : headLength+binary.BigEndian.Uint32(entry)]
}

func restOf(entry []byte) []byte { return entry[headLength+binary.BigEndian.Uint32(entry):] }

func compareEntries(a, b []byte) int {
	if c := bytes.Compare(idOf(a), idOf(b)); c != 0 {
		return c
	}
	return bytes.Compare(restOf(a), restOf(b))
}

// sorter sorts entries, each an id and what is said of it, of any number in memory that is bounded, by files of sorted
// runs. The files are gone when it is closed; where the system allows it they have no name at all, so that a process
// that is killed leaves none behind.
type sorter struct {
	dir   string
	limit int
	arena []byte   // entries, one behind the other
	index []uint32 // where each begins
	runs  []*os.File
}

func newSorter(dir string, limit int) *sorter {
	return &sorter{dir: dir, limit: limit, arena: make([]byte, 0, limit)} // one that grows would leave as much behind
}

// add takes an entry.
func (s *sorter) add(id string, rest []byte) error {
	size := headLength + len(id) + len(rest)
	if size > maxEntrySize {
		return fmt.Errorf("an id has %d bytes, at most %d can be compared: the query of effects returns something else than ids", len(id), maxEntrySize)
	}
	if len(s.arena)+size > s.limit && len(s.index) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
	}
	s.index = append(s.index, uint32(len(s.arena)))                     //nolint:gosec // the arena is smaller
	s.arena = binary.BigEndian.AppendUint32(s.arena, uint32(len(id)))   //nolint:gosec // see above
	s.arena = binary.BigEndian.AppendUint32(s.arena, uint32(len(rest))) //nolint:gosec // see above
	s.arena = append(append(s.arena, id...), rest...)
	return nil
}

func sizeOf(head []byte) int {
	return headLength + int(binary.BigEndian.Uint32(head)) + int(binary.BigEndian.Uint32(head[headLength/2:]))
}

func (s *sorter) at(begin uint32) []byte { return s.arena[begin:][:sizeOf(s.arena[begin:])] }

func (s *sorter) sort() {
	slices.SortFunc(s.index, func(a, b uint32) int { return compareEntries(s.at(a), s.at(b)) })
}

// spill writes what is in memory to a file.
func (s *sorter) spill() error {
	s.sort()
	file, err := os.CreateTemp(s.dir, "einmal-audit-*")
	if err != nil {
		return fmt.Errorf("make a sorted file: %w", err)
	}
	s.runs = append(s.runs, file)
	_ = os.Remove(file.Name()) // again at the end, where an open file cannot be removed
	w := bufio.NewWriterSize(file, 1<<20)
	for _, begin := range s.index {
		if _, err := w.Write(s.at(begin)); err != nil {
			return fmt.Errorf("write a sorted file: %w", err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write a sorted file: %w", err)
	}
	s.arena, s.index = s.arena[:0], s.index[:0]
	return nil
}

// each calls f for all entries in their order. The bytes are f's until it returns.
func (s *sorter) each(f func(id, rest []byte) error) error {
	if len(s.runs) > 0 {
		if err := s.spill(); err != nil {
			return err
		}
		s.arena, s.index = nil, nil
		return s.merge(f)
	}
	s.sort()
	for _, begin := range s.index {
		if err := f(idOf(s.at(begin)), restOf(s.at(begin))); err != nil {
			return err
		}
	}
	return nil
}

// merge reads all files at once.
func (s *sorter) merge(f func(id, rest []byte) error) error {
	var all runs
	for _, file := range s.runs {
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("read a sorted file: %w", err)
		}
		r := &run{reader: bufio.NewReaderSize(file, mergeBytes)}
		if err := r.next(); err != nil {
			return err
		}
		if r.head != nil {
			all = append(all, r)
		}
	}
	heap.Init(&all)
	for len(all) > 0 {
		err := f(idOf(all[0].head), restOf(all[0].head))
		if err == nil {
			err = all[0].next()
		}
		switch {
		case err != nil:
			return err
		case all[0].head == nil:
			heap.Pop(&all)
		default:
			heap.Fix(&all, 0)
		}
	}
	return nil
}

// close removes the files.
func (s *sorter) close() error {
	var errs []error
	for _, file := range s.runs {
		errs = append(errs, file.Close())
		if err := os.Remove(file.Name()); !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// run is a file that is being merged.
type run struct {
	reader *bufio.Reader
	head   []byte // the entry that is next; nil at the end
	buffer []byte
}

func (r *run) next() error {
	r.buffer = slices.Grow(r.buffer[:0], headLength)[:headLength]
	if _, err := io.ReadFull(r.reader, r.buffer); err != nil {
		r.head = nil
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("read a sorted file: %w", err)
	}
	size := sizeOf(r.buffer)
	if size > maxEntrySize {
		return errDamaged
	}
	r.buffer = slices.Grow(r.buffer, size-headLength)[:size]
	if _, err := io.ReadFull(r.reader, r.buffer[headLength:]); err != nil {
		return fmt.Errorf("read a sorted file: %w", err)
	}
	r.head = r.buffer
	return nil
}

// runs is a heap of them, by what is next in each.
type runs []*run

func (r runs) Len() int           { return len(r) }
func (r runs) Less(i, j int) bool { return compareEntries(r[i].head, r[j].head) < 0 }
func (r runs) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)        { *r = append(*r, x.(*run)) } //nolint:forcetypeassert // by package heap
func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}
