package console

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/einmal-go/einmal/deadletter"
)

// maxCounted is up to which dead letters are counted that a search finds.
const maxCounted = 10_000

// maxNamed is how many dead letters a search may find that no deadletter.Filter describes: they are redriven by their
// numbers.
const maxNamed = maxCounted

// chosenLetters are dead letters with which something is to be done: the numbers that are named, or all that a search
// finds.
type chosenLetters struct {
	*deadTable

	search deadletter.Search
}

// choose reads which are meant. All that a search finds are those that had died when it was first asked: args keep that
// time.
func (c *Console) choose(ctx context.Context, args url.Values) (*chosenLetters, error) {
	t, err := c.deadTable(args)
	if err != nil {
		return nil, err
	}
	s, err := searchOf(args, time.Now())
	if err != nil {
		return nil, err
	}
	ch := &chosenLetters{t, s}
	if !s.Since.IsZero() {
		args.Set("since", s.Since.UTC().Format(time.RFC3339Nano)) // not how long ago
	}
	switch all := args.Get("all") != ""; {
	case len(s.IDs) > 0 && !all:
		ch.search = deadletter.Search{Filter: deadletter.Filter{IDs: s.IDs}}
		return ch, nil
	case !all:
		return nil, &refusal{http.StatusBadRequest, "Choose some dead letters first.", "Nothing was done."}
	case !s.Until.IsZero():
		args.Set("until", s.Until.UTC().Format(time.RFC3339Nano))
		return ch, nil
	}
	err = t.ask(ctx, c, func(ctx context.Context, b deadletter.Browser) error {
		newest, err := b.Browse(ctx, s, deadletter.Page{Limit: 1})
		if err == nil && len(newest) > 0 {
			ch.search.Until = newest[0].Died.Add(time.Millisecond)
			args.Set("until", ch.search.Until.Format(time.RFC3339Nano))
		}
		return err
	})
	return ch, asRefusal(err)
}

// asRefusal has an error say that nothing was done.
func asRefusal(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*refusal](err); ok {
		return err
	}
	return &refusal{http.StatusBadGateway, "This could not be asked for.", shownError(err) + ". Nothing was done."}
}

// goneOr is the refusal for a dead letter that is not there, or an error that it is.
func goneOr(err error) error {
	if errors.Is(err, deadletter.ErrTaken) {
		return &refusal{http.StatusNotFound, "There is no such dead letter, or not any more.",
			"It was redriven or discarded, or is being redriven now."}
	}
	return err
}

// target names them, for Authorize and the log.
func (ch *chosenLetters) target() string {
	args := map[string]string{
		"consumer": ch.search.Consumer, "kind": string(ch.search.Kind), "topic": ch.search.Topic,
		"error": ch.search.ErrorType,
		"event": ch.search.Event, "text": ch.search.Text, "key": keyArg(ch.search.Key),
	}
	if ch.search.NoErrorType {
		args["error"] = noErrorType
	}
	if len(ch.search.IDs) > 0 {
		ids := make([]string, 0, len(ch.search.IDs))
		for _, id := range ch.search.IDs {
			ids = append(ids, strconv.FormatInt(id, 10))
		}
		args["numbers"] = strings.Join(ids, " ")
	}
	if !ch.search.Since.IsZero() {
		args["since"] = ch.search.Since.UTC().Format(time.RFC3339)
	}
	if !ch.search.Until.IsZero() {
		args["until"] = ch.search.Until.UTC().Format(time.RFC3339)
	}
	return describe(ch.Name, args)
}

// keyArg is a key as an argument: a text where it is one that can be typed.
func keyArg(key []byte) string {
	if key == nil {
		return ""
	}
	text := string(key)
	if len(key) > 0 && utf8.Valid(key) && !strings.HasPrefix(text, "hex:") &&
		strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0 {
		return text
	}
	return "hex:" + hex.EncodeToString(key)
}

// back is the list that has them.
func (ch *chosenLetters) back(args url.Values) string {
	pairs := []string{"table", ch.Name}
	for _, name := range searchFields {
		if args.Get(name) != "" && name != "until" {
			pairs = append(pairs, name, args.Get(name))
		}
	}
	return address("letters", pairs...)
}

// survey is what is found out about them before something is done.
type survey struct {
	count     int64
	more      bool
	keys      []string // the first different ones
	moreKeys  bool
	without   int // of those that were looked at: without a key
	consumers []string
}

// surveyed is how many of them are looked at for their keys.
const surveyed = 200

// look counts them, and looks at the first ones.
func (ch *chosenLetters) look(ctx context.Context, c *Console) (*survey, error) {
	s := &survey{}
	err := ch.ask(ctx, c, func(ctx context.Context, b deadletter.Browser) (err error) {
		if s.count, s.more, err = b.CountUpTo(ctx, ch.search, maxCounted); err != nil {
			return err
		}
		list, err := b.Browse(ctx, ch.search, deadletter.Page{OldestFirst: true, Limit: surveyed})
		s.see(list)
		return err
	})
	if err == nil && s.count == 0 {
		err = &refusal{http.StatusNotFound, "There are no such dead letters, or not any more.", "Nothing was done."}
	}
	return s, asRefusal(err)
}

func (s *survey) see(list []*deadletter.Record) {
	const shown = 10
	keys, consumers := map[string]bool{}, map[string]bool{}
	for _, rec := range list {
		consumers[rec.Consumer] = true
		if rec.Key == nil {
			s.without++
			continue
		}
		keys[keyArg(rec.Key[:min(len(rec.Key), 60)])] = true
	}
	s.keys, s.consumers = slices.Sorted(maps.Keys(keys)), slices.Sorted(maps.Keys(consumers))
	if s.moreKeys = len(s.keys) > shown || s.more || s.count > int64(len(list)); len(s.keys) > shown {
		s.keys = s.keys[:shown]
	}
}

// says are the sentences about it.
func (s *survey) says(of string) []string {
	says := []string{fmt.Sprintf("%s %s of %s.", atLeast(s.count, s.more), plural(s.count, "dead letter"), of)}
	switch keys := strings.Join(s.keys, ", "); {
	case len(s.keys) == 0 && s.without > 0:
		says = append(says, "None of those that were looked at has a key.")
	case s.moreKeys:
		says = append(says, "Their keys: "+keys+", and others.")
	default:
		says = append(says, "Their keys: "+keys+".")
	}
	return says
}

func atLeast(n int64, more bool) string {
	if more {
		return fmt.Sprintf("More than %d", n)
	}
	return strconv.FormatInt(n, 10)
}

func plural(n int64, one string) string {
	if n == 1 {
		return one
	}
	return one + "s"
}

// endsWithProcess is what people should know of a job.
const endsWithProcess = "It is a job of this process: its page shows how far it is, and it can be stopped. If the process ends, what was done is done, and doing it again does nothing twice."

// discardLetters deletes dead letters for good.
var discardLetters = deed{
	verb: "dead.discard", title: "Discard dead letters", button: "Discard them for good",
	prepare: func(ctx context.Context, c *Console, args url.Values) (*plan, error) {
		ch, err := c.choose(ctx, args)
		if err != nil {
			return nil, err
		}
		s, err := ch.look(ctx, c)
		if err != nil {
			return nil, err
		}
		says := append(s.says(ch.Name),
			"They are deleted for good, and their messages are not handled again: the records of their events stay.",
			endsWithProcess)
		return &plan{Target: ch.target(), Says: says, Back: ch.back(args)}, nil
	},
	do: func(ctx context.Context, c *Console, args url.Values, e *Entry) (outcome, error) {
		ch, err := c.choose(ctx, args)
		if err != nil {
			return outcome{}, err
		}
		s, err := ch.look(ctx, c)
		if err != nil {
			return outcome{}, err
		}
		j := ch.job("Discard dead letters", args, e, s)
		j.do = func(ctx context.Context, tell func(func(*progress))) error { return ch.discard(ctx, tell) }
		return c.begins(j)
	},
}

// job is one that works on the table.
func (ch *chosenLetters) job(title string, args url.Values, e *Entry, s *survey) *job {
	return &job{Title: title, Entry: *e, Back: ch.back(args), on: "table " + ch.Name,
		now: progress{Total: s.count, TotalMore: s.more}}
}

// discardBatch is how many are discarded at once: what is stopped ends behind one batch.
const discardBatch = 200

// discard discards them, the oldest first.
func (ch *chosenLetters) discard(ctx context.Context, tell func(func(*progress))) error {
	page := deadletter.Page{OldestFirst: true, Limit: discardBatch}
	for {
		ids, err := ch.next(ctx, &page)
		if err != nil || len(ids) == 0 {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := ch.Table.Discard(context.WithoutCancel(ctx), deadletter.Filter{IDs: ids}) // a batch is done or not, and told
		tell(func(p *progress) {
			p.Looked += int64(len(ids))
			p.Changed += n
			p.Gone += int64(len(ids)) - n
		})
		if err != nil {
			return err
		}
	}
}

// next returns the numbers of the next page, and moves the page on.
func (ch *chosenLetters) next(ctx context.Context, page *deadletter.Page) (ids []int64, err error) {
	list, err := ch.page(ctx, page)
	for _, rec := range list {
		ids = append(ids, rec.ID)
	}
	return ids, err
}

// page returns the next page, and moves it on; an empty one is the end. A job takes its time: it is not bound by that
// of a page of the console.
func (ch *chosenLetters) page(ctx context.Context, page *deadletter.Page) ([]*deadletter.Record, error) {
	for {
		list, err := ch.part(ctx, page)
		partly, isPart := errors.AsType[*deadletter.PartialError](err)
		switch {
		case isPart:
			page.Beyond = partly.Beyond
		case len(list) > 0:
			page.Beyond = list[len(list)-1].ID
		}
		if !isPart || len(list) > 0 {
			if isPart {
				err = nil
			}
			return list, err
		}
	}
}

func (ch *chosenLetters) part(ctx context.Context, page *deadletter.Page) ([]*deadletter.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, jobQuestion)
	defer cancel()
	return ch.browser.Browse(ctx, ch.search, *page)
}

// jobQuestion is how long a question of a job may take.
const jobQuestion = time.Minute
