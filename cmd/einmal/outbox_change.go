package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/einmal-go/einmal/outbox"
)

// changeTimeout outlasts the lease of a relay that has died, which is 45 s unless it is configured.
const changeTimeout = 10 * time.Minute

// changeFlags are the flags of a command that changes rows.
func changeFlags(flags *flag.FlagSet, rows *outboxFlags) (yes *bool) {
	rows.add(flags)
	flags.Lookup("timeout").DefValue = changeTimeout.String()
	rows.url.timeout = changeTimeout
	flags.IntVar(&rows.filter.Limit, "limit", 0, "so `many` at most, the first ones; 0 is no limit")
	return confirmFlag(flags)
}

// change shows what would be changed, asks, and changes it.
func (f *outboxFlags) change(ctx context.Context, env *environment, yes bool, c outbox.Change, done string,
	do func(ctx context.Context, o *outbox.Operator) (int64, error)) error {
	if f.filter.Limit < 0 {
		return usagef("-limit is %d: leave it out, or make it positive", f.filter.Limit)
	}
	return f.with(ctx, env, func(ctx context.Context, o *outbox.Operator) error {
		unfit, err := f.unfit(ctx, env.stderr, o, c)
		if err != nil {
			return err
		}
		groups, err := o.Preview(ctx, c, f.filter)
		if err != nil {
			return err
		}
		total := int64(0)
		for _, g := range groups {
			total += g.Rows
			fmt.Fprintf(env.stdout, "to %s: %d of %s, %s, the oldest of %s\n", c, g.Rows, plain(g.Topic), g.State,
				g.Oldest.Format(time.RFC3339))
			if c == outbox.ToRetry && g.State == outbox.Dead {
				fmt.Fprintln(env.stdout, "    these were discarded: they come after what was sent of their keys since, and the reasons are removed")
			}
		}
		if f.filter.Limit > 0 {
			total = min(total, int64(f.filter.Limit))
		}
		if total > 0 {
			if err := confirm(env, yes, fmt.Sprintf("%s %d events?", c, total)); err != nil {
				return err
			}
		}
		show, end := progress(env, done, total)
		n, err := do(ctx, o.WithProgress(show))
		end()
		fmt.Fprintf(env.stdout, "%s: %d\n", done, n)
		switch {
		case err != nil:
			return err
		case unfit:
			return errNo
		}
		return nil
	})
}

// unfit says which of the rows that were named are not there, or in a state in which they cannot be changed so.
func (f *outboxFlags) unfit(ctx context.Context, warn io.Writer, o *outbox.Operator, c outbox.Change) (some bool,
	err error) {
	named := slices.Compact(slices.Sorted(slices.Values(f.filter.Numbers)))
	f.filter.Numbers = named
	if len(named) == 0 {
		f.filter.Numbers = nil
		return false, nil
	}
	list, err := o.List(ctx, outbox.Filter{Numbers: named, Limit: len(named)})
	if err != nil {
		return false, err
	}
	states := map[int64]outbox.Row{}
	for _, r := range list {
		states[r.Number] = r
	}
	for _, number := range named {
		r, found := states[number]
		switch {
		case !found:
			fmt.Fprintf(warn, "einmal: %d is not in the outbox, or not any more\n", number)
		case f.filter.Topic != "" && r.Event.Topic != f.filter.Topic, f.filter.State != "" && r.State != f.filter.State:
			fmt.Fprintf(warn, "einmal: %d is of %s, %s: the flags exclude it\n", number, plain(r.Event.Topic), r.State)
		case !c.Changes(r.State):
			fmt.Fprintf(warn, "einmal: %d is %s: there is nothing to %s\n", number, r.State, c)
		default:
			continue
		}
		some = true
	}
	return some, nil
}

var outboxRetry = command{
	name: "outbox retry", args: "[number...]",
	about: "Have blocked or discarded events sent again.",
	more: "The flags and numbers say which. It shows them, and asks. An event that was blocked goes in its place in the order of its key. What somebody has\n" +
		"discarded is only taken if -state DEAD or its number names it; it comes after what was sent of its key meanwhile.\n\n" +
		"The exit code is 1 if a number is not there, or not in a state for it.\n\n" +
		"example: einmal outbox retry -state BLOCKED -topic orders",
	setup: func(flags *flag.FlagSet) action {
		var rows outboxFlags
		yes := changeFlags(flags, &rows)
		return func(ctx context.Context, env *environment, args []string) error {
			if some, err := rows.complete(args); err != nil || !some {
				return firstOf(err, usagef("say which: by numbers, -state BLOCKED, or -topic"))
			}
			return rows.change(ctx, env, *yes, outbox.ToRetry, "to be sent again",
				func(ctx context.Context, o *outbox.Operator) (int64, error) {
					return o.Retry(ctx, rows.filter)
				})
		}
	},
}

func firstOf(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

var outboxDiscard = command{
	name: "outbox discard", args: "[number...]",
	about: "Give events up, so that the later ones of their keys go on.",
	more: "The flags and numbers say which. It shows them, and asks. Only what is blocked is taken: what waits, and would be sent, only if -state PENDING or\n" +
		"its number names it. The rows stay, in the state DEAD, with the reason.\n\n" +
		"The exit code is 1 if a number is not there, or not in a state for it.\n\n" +
		"example: einmal outbox discard -reason 'ann: the customer is gone' 4711",
	setup: func(flags *flag.FlagSet) action {
		var rows outboxFlags
		yes := changeFlags(flags, &rows)
		reason := flags.String("reason", "", "who gives them up, and why")
		return func(ctx context.Context, env *environment, args []string) error {
			switch some, err := rows.complete(args); {
			case err != nil:
				return err
			case !some:
				return usagef("say which: by numbers, -state BLOCKED, or -topic")
			case strings.TrimSpace(*reason) == "":
				return usagef("-reason is missing: who gives them up, and why")
			}
			return rows.change(ctx, env, *yes, outbox.ToDiscard, "discarded",
				func(ctx context.Context, o *outbox.Operator) (int64, error) {
					return o.Discard(ctx, rows.filter, *reason)
				})
		}
	},
}

var outboxEdit = command{
	name: "outbox edit", args: "number",
	about: "Change the topic, the partition or the value of an event that waits, is blocked or was discarded, and have it sent.",
	more: "Its id and its key stay as they are: they are its place in an order, and how consumers know it. Headers stay too. It shows what it would change,\n" +
		"and asks.\n\n" +
		"example: einmal outbox edit -topic orders.v2 4711",
	setup: func(flags *flag.FlagSet) action {
		var rows outboxFlags
		rows.tables.add(flags)
		rows.url.add(flags)
		flags.Lookup("timeout").DefValue = changeTimeout.String()
		rows.url.timeout = changeTimeout
		var e edit
		flags.StringVar(&e.topic, "topic", "", "the new `topic`")
		flags.IntVar(&e.partition, "partition", keepPartition, "the new `partition`; -1 has the key choose")
		flags.StringVar(&e.value, "value", "", "a `file` with the new value")
		yes := confirmFlag(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			switch _, err := rows.complete(args); {
			case err != nil:
				return err
			case len(rows.filter.Numbers) != 1:
				return usagef("name the number of one row, as the list shows it")
			case e.topic == "" && e.partition == keepPartition && e.value == "":
				return usagef("say what is changed: -topic, -partition or -value")
			case e.partition < -1 && e.partition != keepPartition || e.partition > 1<<31-1:
				return usagef("-partition is %d: name one from 0 on, or -1 to have the key choose", e.partition)
			}
			if err := e.read(); err != nil {
				return err
			}
			return rows.with(ctx, env, func(ctx context.Context, o *outbox.Operator) error {
				return e.do(ctx, env, o, rows.filter.Numbers[0], *yes)
			})
		}
	},
}

const keepPartition = -2

// edit is what is changed of an event.
type edit struct {
	topic, value string
	partition    int
	bytes        []byte // of the new value
}

func (e *edit) read() (err error) {
	if e.value != "" {
		if e.bytes, err = os.ReadFile(e.value); err != nil {
			return usagef("-value: %v", err)
		}
	}
	return nil
}

func (e *edit) do(ctx context.Context, env *environment, o *outbox.Operator, number int64, yes bool) error {
	row, err := o.Show(ctx, number)
	if err != nil {
		return err
	}
	if err := showRow(env.stdout, row); err != nil {
		return err
	}
	e.show(env.stdout, &row)
	if err := confirm(env, yes, "edit it, and have it sent?"); err != nil {
		return err
	}
	if err := o.Edit(ctx, number, e.apply); err != nil {
		return err
	}
	fmt.Fprintln(env.stdout, "edited: 1")
	return nil
}

func (e *edit) show(to io.Writer, row *outbox.Row) {
	if row.State == outbox.Dead {
		fmt.Fprintln(to, "    it was discarded: it comes after what was sent of its key since, and the reason is removed")
	}
	if e.topic != "" && row.Event.Key != nil {
		fmt.Fprintln(to, "    events of its key that are sent to another topic have no order with it")
	}
	if e.topic != "" {
		fmt.Fprintf(to, "    topic: %s, instead of %s\n", plain(e.topic), plain(row.Event.Topic))
	}
	if e.partition != keepPartition {
		fmt.Fprintf(to, "    partition: %s\n", partitionName(e.partition))
	}
	if e.value != "" {
		fmt.Fprintf(to, "    value: %d bytes, instead of %d\n", len(e.bytes), len(row.Event.Value))
	}
}

func partitionName(p int) string {
	if p < 0 {
		return "that of its key"
	}
	return fmt.Sprint(p)
}

func (e *edit) apply(event *outbox.Event) error {
	if e.topic != "" {
		event.Topic = e.topic
	}
	switch {
	case e.partition == -1:
		event.Partition = nil
	case e.partition >= 0:
		event.Partition = new(int32(e.partition)) //nolint:gosec // it was checked
	}
	if e.value != "" {
		event.Value = e.bytes
	}
	return nil
}

var outboxMode = command{
	name: "outbox mode", args: "[single-phase|two-phase]",
	about: "Show how the outbox is sent, or switch it.",
	more: "Stop all relays before it is switched: it is refused while one is at work. It asks. What a two-phase relay has left is sent again.\n\n" +
		"example: einmal outbox mode two-phase",
	setup: func(flags *flag.FlagSet) action {
		var rows outboxFlags
		rows.tables.add(flags)
		rows.url.add(flags)
		yes := confirmFlag(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			if len(args) > 1 || len(args) == 1 && outbox.Mode(args[0]) != outbox.SinglePhase &&
				outbox.Mode(args[0]) != outbox.TwoPhase {
				return usagef("name one mode, %s or %s, or none to see what it is", outbox.SinglePhase, outbox.TwoPhase)
			}
			return rows.with(ctx, env, func(ctx context.Context, o *outbox.Operator) error {
				now, err := o.Mode(ctx)
				if err != nil {
					return err
				}
				fmt.Fprintf(env.stdout, "the mode is %s\n", modeName(now))
				if len(args) == 0 || string(now) == args[0] {
					return nil
				}
				if err := confirm(env, *yes, "switch it to "+args[0]+"?"); err != nil {
					return err
				}
				if err := o.SwitchMode(ctx, outbox.Mode(args[0])); err != nil {
					return err
				}
				fmt.Fprintf(env.stdout, "it is %s now\n", args[0])
				return nil
			})
		}
	},
}

func modeName(m outbox.Mode) string {
	if m == "" {
		return "not set: no relay has run yet"
	}
	return string(m)
}
