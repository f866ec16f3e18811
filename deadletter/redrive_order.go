package deadletter

import (
	"cmp"
	"context"
	"maps"
	"slices"
)

// place is a partition of a topic, in which messages have an order.
type place struct {
	topic     string
	id        string // topics of one name that were deleted and created have offsets of their own
	partition int32
}

func placeOf(rec *Record) place { return place{rec.Topic, rec.TopicID, rec.Partition} }

// stood is where a dead letter stood.
type stood struct{ id, offset int64 }

// jumbled are the partitions whose dead letters did not die in the order in which they stood: their messages were tried
// side by side, or one for longer than another.
type jumbled struct {
	by   map[place][]stood // the dead letters of these partitions, in the order in which they stood
	upTo int64             // the last id that was looked at
}

// survey finds them.
func (r *redrive[Tx]) survey(ctx context.Context) (j jumbled, err error) {
	j.by = map[place][]stood{}
	for {
		list, err := r.source.List(ctx, r.cfg.Filter, j.upTo, surveyed)
		if err != nil {
			return j, err
		}
		if len(list) == 0 {
			break
		}
		for _, rec := range list {
			j.by[placeOf(rec)] = append(j.by[placeOf(rec)], stood{rec.ID, rec.Offset})
			j.upTo = rec.ID
		}
	}
	byOffset := func(a, b stood) int { return cmp.Compare(a.offset, b.offset) }
	maps.DeleteFunc(j.by, func(_ place, all []stood) bool { return slices.IsSortedFunc(all, byOffset) })
	for _, all := range j.by {
		slices.SortStableFunc(all, byOffset)
	}
	return j, nil
}

// surveyed is how many dead letters the survey lists at once.
const surveyed = 1000

// places are the partitions, that of the oldest dead letter first.
func (j *jumbled) places() []place {
	oldest := func(p place) int64 {
		return slices.MinFunc(j.by[p], func(a, b stood) int { return cmp.Compare(a.id, b.id) }).id
	}
	return slices.SortedFunc(maps.Keys(j.by), func(a, b place) int { return cmp.Compare(oldest(a), oldest(b)) })
}

// has reports whether rec was among them at the survey.
func (j *jumbled) has(rec *Record) bool { return rec.ID <= j.upTo && j.by[placeOf(rec)] != nil }

// inOrder redrives the dead letters of the partitions that are jumbled. What has gone since the survey was taken by
// somebody else.
func (r *redrive[Tx]) inOrder(ctx context.Context, j *jumbled) error {
	for _, p := range j.places() {
		for part := range slices.Chunk(j.by[p], page) {
			if r.done() {
				return nil
			}
			if err := r.these(ctx, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// these redrives dead letters in the order of part.
func (r *redrive[Tx]) these(ctx context.Context, part []stood) error {
	filter := r.cfg.Filter
	filter.IDs = make([]int64, 0, len(part))
	for _, s := range part {
		filter.IDs = append(filter.IDs, s.id)
	}
	list, err := r.source.List(ctx, filter, 0, len(part))
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(a, b *Record) int { return cmp.Compare(a.Offset, b.Offset) })
	return r.all(ctx, list)
}
