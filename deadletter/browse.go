package deadletter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Browser is a Keeper through which people look, however large its table is: the tables of this module are Browsers. No
// call counts or sorts more than it has to; each ends soon after the deadline of its ctx, in PostgreSQL by the server's
// statement_timeout, and none writes. An error wraps ErrTooLong where the time did not suffice.
//
// It is an interface beside Keeper for those who have implemented that: where a Keeper is no Browser, there are lists
// alone.
type Browser interface {
	// Browse returns a page of dead letters. Their Key is there, cut to MaxBrowsedKey bytes; Value and Headers are not.
	// What no index finds is looked for from page.Beyond on as long as the time suffices: then the error is a
	// *PartialError, and the list beside it is what was found until then.
	Browse(ctx context.Context, search Search, page Page) ([]*Record, error)
	// Groups returns the groups that come behind one, the first ones if that is nil, at most limit of them.
	Groups(ctx context.Context, behind *Group, limit int) ([]Group, error)
	// CountUpTo counts dead letters, most of them at most: what is found beyond is told by more.
	CountUpTo(ctx context.Context, search Search, most int64) (n int64, more bool, err error)
	// Overtaken counts those that would overtake others if all of the search were redriven: of the same consumer, topic,
	// partition and key, which stood before them and are not of the search, or are held, see Filter.Holds. It counts as
	// CountUpTo does.
	Overtaken(ctx context.Context, search Search, most int64) (n int64, more bool, err error)
}

// Search says which dead letters are looked for. Fields that are zero do not restrict.
type Search struct {
	Filter

	Event string // Record.Event
	Key   []byte // Record.Key; nil is any
	// NoErrorType is for those whose ErrorType is empty.
	NoErrorType bool

	Text string // a part of the error, of its type, of the last redrive's error, of the event's id or of the topic, in letters of any case
}

// Plain reports whether the Filter alone says which.
func (s *Search) Plain() bool { return s.Event == "" && s.Key == nil && s.Text == "" && !s.NoErrorType }

// Nothing reports whether no dead letter can be found, because no table can hold such a text.
func (s *Search) Nothing() bool {
	for _, text := range []string{s.Event, s.Text, s.Consumer, s.Topic, string(s.Kind), s.ErrorType} {
		if !utf8.ValidString(text) || strings.IndexByte(text, 0) >= 0 {
			return true
		}
	}
	return false
}

// Page is a part of what a search finds. The zero Page is the newest ones.
type Page struct {
	OldestFirst bool
	Beyond      int64 // the ID of the last one of the page before; 0 for the first page
	Limit       int   // defaults to DefaultPageLimit
}

const (
	// DefaultPageLimit is how many dead letters a page has.
	DefaultPageLimit = 50
	// MaxBrowsedKey is how much of a key a page has, in bytes.
	MaxBrowsedKey = 1024
	// MaxGroupCount is up to which the members of a group are counted.
	MaxGroupCount = 1_000
)

// Group is the dead letters of a consumer that died of the same.
type Group struct {
	Consumer  string
	Kind      Kind
	ErrorType string
	Count     int64     // MaxGroupCount if More
	More      bool      // there are more than that
	Oldest    time.Time // when the one with the lowest ID died
	Newest    time.Time // when the one with the highest ID died
}

// Search finds the dead letters of the group.
func (g *Group) Search() Search {
	return Search{Filter: Filter{Consumer: g.Consumer, Kind: g.Kind, ErrorType: g.ErrorType},
		NoErrorType: g.ErrorType == ""}
}

// ErrTooLong is wrapped where a Browser had not found an answer in the time that there was.
var ErrTooLong = errors.New("the table is too large for this question in the time that there is: narrow it, by a window of time first, or by a consumer, a kind and an error type")

// PartialError says that a Browser has looked at a part of the table only. A page behind Beyond is of the rest. It wraps
// ErrTooLong.
type PartialError struct {
	Looked int64     // how many dead letters it has looked at
	Beyond int64     // the ID of the last one of them: Page.Beyond of the rest
	Died   time.Time // when that one died
}

// Error implements error.
func (e *PartialError) Error() string {
	return fmt.Sprintf("%d dead letters were looked at, until that of %s, and others were not: %v", e.Looked,
		e.Died.UTC().Format(time.RFC3339), ErrTooLong)
}

// Unwrap returns ErrTooLong.
func (e *PartialError) Unwrap() error { return ErrTooLong }
