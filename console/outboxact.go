package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/einmal-go/einmal/outbox"
)

// outboxFilter reads which rows are meant: their numbers, or a state and perhaps a topic.
func outboxFilter(args url.Values) (f outbox.Filter, err error) {
	for _, text := range args["number"] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 1 {
			return f, wrongArg("%q is no number of an event.", text)
		}
		f.Numbers = append(f.Numbers, n)
	}
	if len(f.Numbers) > 0 {
		return f, nil
	}
	if f.State, f.Topic = outbox.State(args.Get("state")), args.Get("topic"); f.State == "" {
		return f, &refusal{http.StatusBadRequest, "Choose some events first.", "Nothing was done."}
	}
	return f, nil
}

// changeRows is the deed of a change, which is a job: it waits for what the relays have in work.
func changeRows(change outbox.Change, d deed, says string,
	do func(ctx context.Context, o *outbox.Operator, f outbox.Filter, e *Entry) (int64, error)) deed {
	d.prepare = func(ctx context.Context, c *Console, args url.Values) (*plan, error) {
		t, f, groups, err := c.previewRows(ctx, args, change)
		if err != nil {
			return nil, err
		}
		p := &plan{Target: describeRows(t.Name, &f), Back: address("events", "outbox", t.Name, "state", string(f.State),
			"topic", f.Topic)}
		for _, g := range groups {
			p.Says = append(p.Says, fmt.Sprintf("%d %s of %s, %s, the oldest of %s.", g.Rows, plural(g.Rows, "event"), g.Topic,
				strings.ToLower(string(g.State)), g.Oldest.UTC().Format(time.RFC3339)))
		}
		p.Says = append(p.Says, says, endsWithProcess)
		return p, nil
	}
	d.do = func(ctx context.Context, c *Console, args url.Values, e *Entry) (outcome, error) {
		t, f, groups, err := c.previewRows(ctx, args, change)
		if err != nil {
			return outcome{}, err
		}
		j := &job{Title: d.title, Entry: *e, Back: address("outbox", "outbox", t.Name), on: "outbox " + t.Name}
		for _, g := range groups {
			j.now.Total += g.Rows
		}
		j.do = func(ctx context.Context, tell func(func(*progress))) error {
			n, err := do(ctx, t.Operator.WithProgress(func(n int64) {
				tell(func(p *progress) { p.Looked, p.Changed = n, n })
			}), f, e)
			tell(func(p *progress) {
				p.Looked, p.Changed = n, n
				if err == nil && n < p.Total {
					p.Gone = p.Total - n
				}
			})
			return err
		}
		return c.begins(j)
	}
	return d
}

// previewRows says what a change would change.
func (c *Console) previewRows(ctx context.Context, args url.Values, change outbox.Change) (t *outboxTable,
	f outbox.Filter, groups []outbox.Group, err error) {
	if t, err = c.outboxTable(args); err != nil {
		return nil, f, nil, err
	}
	if f, err = outboxFilter(args); err != nil {
		return nil, f, nil, err
	}
	if f.State != "" && !change.Changes(f.State) {
		return nil, f, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("Events that are %s cannot be changed so.", f.State),
			"Nothing was done."}
	}
	err = t.ask(ctx, c, func(ctx context.Context, o *outbox.Operator) (err error) {
		groups, err = o.Preview(ctx, change, f)
		return err
	})
	if err == nil && len(groups) == 0 {
		err = &refusal{http.StatusConflict, "There are no such events, or none that can be changed so.",
			"They were sent, or changed by somebody else. Nothing was done."}
	}
	return t, f, groups, asRefusal(err)
}

func describeRows(name string, f *outbox.Filter) string {
	numbers := make([]string, len(f.Numbers))
	for i, n := range f.Numbers {
		numbers[i] = strconv.FormatInt(n, 10)
	}
	return describe(name, map[string]string{"numbers": strings.Join(numbers, " "), "state": string(f.State),
		"topic": f.Topic})
}

var retryEvents = changeRows(outbox.ToRetry, deed{verb: "outbox.retry", title: "Send events again",
	button: "Send them again"},
	"They are sent in their place in the order of their keys. One that was discarded comes after what was sent of its key since, and the reason is removed.",
	func(ctx context.Context, o *outbox.Operator, f outbox.Filter, _ *Entry) (int64, error) {
		return o.Retry(ctx, f)
	})

var discardEvents = changeRows(outbox.ToDiscard, deed{verb: "outbox.discard", title: "Discard events",
	button: "Discard them"},
	"They are not sent, and the later ones of their keys go on. They stay in the table, with who discarded them and why.",
	func(ctx context.Context, o *outbox.Operator, f outbox.Filter, e *Entry) (int64, error) {
		return o.Discard(ctx, f, e.Who+": "+e.Reason)
	})

// editEvent changes the topic or the headers of an event that is not sent yet, and has it sent.
var editEvent = deed{
	verb: "outbox.edit", title: "Edit an event", button: "Change it, and send it",
	prepare: func(ctx context.Context, c *Console, args url.Values) (*plan, error) {
		t, row, err := c.outboxRow(ctx, args)
		if err != nil {
			return nil, err
		}
		if v := (eventView{Row: row}); !v.CanEdit() {
			return nil, &refusal{http.StatusConflict, fmt.Sprintf("The event is %s.", strings.ToLower(string(row.State))),
				"It cannot be edited. Nothing was done."}
		}
		number := strconv.FormatInt(row.Number, 10)
		p := &plan{
			Target: describe(t.Name, map[string]string{"number": number}), Back: address("event", "outbox", t.Name, "number",
				number),
			Says:   []string{"Its id, its key and its value stay as they are. It is sent in its place in the order of its key, in the new topic."},
			Fields: []field{{Name: "topic", Label: "Topic", Value: valueOf(args, "topic", row.Event.Topic)}},
		}
		if text, ok := headerText(row.Event.Headers); ok {
			p.Fields = append(p.Fields, field{Name: "headers", Label: "Headers", Area: true,
				Value: valueOf(args, "headers", text), Hint: "One a line: name: value"})
		} else {
			p.Says = append(p.Says, "Its headers are not all texts of one line: they stay as they are.")
		}
		return p, nil
	},
	do: func(ctx context.Context, c *Console, args url.Values, _ *Entry) (outcome, error) {
		t, row, err := c.outboxRow(ctx, args)
		if err != nil {
			return outcome{}, err
		}
		topic := strings.TrimSpace(args.Get("topic"))
		if topic == "" {
			return outcome{}, wrongArg("Name a topic.")
		}
		before, canEdit := headerText(row.Event.Headers)
		var headers []outbox.Header
		if canEdit {
			if headers, err = headersOf(args.Get("headers")); err != nil {
				return outcome{}, err
			}
		}
		err = t.Operator.Edit(ctx, row.Number, func(e *outbox.Event) error {
			if now, _ := headerText(e.Headers); now != before {
				return errors.New("somebody else has edited it meanwhile: look at it again")
			}
			if e.Topic = topic; canEdit {
				e.Headers = headers
			}
			return nil
		})
		if err != nil {
			return outcome{}, err
		}
		return outcome{Count: 1, Says: "It waits to be sent."}, nil
	},
}

// valueOf is what was sent, or else what is there.
func valueOf(args url.Values, name, now string) string {
	if args.Has(name) {
		return args.Get(name)
	}
	return now
}

// headerText writes headers one a line; ok is false if they could not be read back from that.
func headerText(headers []outbox.Header) (text string, ok bool) {
	var lines []string
	for _, h := range headers {
		lines = append(lines, h.Key+": "+string(h.Value))
	}
	text = strings.Join(lines, "\n")
	if len(text) > maxForm/4 {
		return "", false
	}
	again, err := headersOf(text)
	same := err == nil && slices.EqualFunc(headers, again, func(a, b outbox.Header) bool {
		return a.Key == b.Key && a.Value != nil && string(a.Value) == string(b.Value)
	})
	return text, same
}

// headersOf reads headers, one a line.
func headersOf(text string) (headers []outbox.Header, err error) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if strings.TrimSpace(line) == "" {
			continue
		}
		name, value, found := strings.Cut(line, ": ")
		if !found {
			name, found = strings.CutSuffix(line, ":")
		}
		if !found || name == "" || !printable(line) {
			return nil, wrongArg("%q is no header: write name: value, one a line.", line)
		}
		headers = append(headers, outbox.Header{Key: name, Value: []byte(value)})
	}
	return headers, nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, unicode.IsControl) < 0
}
