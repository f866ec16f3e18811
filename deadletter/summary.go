package deadletter

import (
	"context"
	"encoding/json"
)

// Counter is the part of a Keeper that Summarize needs.
type Counter interface {
	Count(ctx context.Context, filter Filter) (int64, error)
}

// Summary is how many dead letters a table has, for a page or package status.
type Summary struct {
	Total int64
	Kinds map[Kind]int64 // those of which there are any
}

// Summarize counts the dead letters, all and by kind. It reads the table several times, which costs little as long as
// dead letters are the exception that they should be.
func Summarize(ctx context.Context, table Counter) (*Summary, error) {
	s := &Summary{Kinds: map[Kind]int64{}}
	var err error
	if s.Total, err = table.Count(ctx, Filter{}); err != nil || s.Total == 0 {
		return s, err
	}
	for _, kind := range Kinds() {
		n, err := table.Count(ctx, Filter{Kind: kind})
		if err != nil {
			return nil, err
		}
		if n > 0 {
			s.Kinds[kind] = n
		}
	}
	return s, nil
}

// MarshalJSON writes the fields that docs/status.md lists.
func (s Summary) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Kind  string         `json:"kind"`
		Total int64          `json:"total"`
		Kinds map[Kind]int64 `json:"kinds"`
	}{"dead_letters", s.Total, s.Kinds})
}
