package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
	"github.com/einmal-go/einmal/schema"
)

// outboxFlags say which rows of the outbox are meant.
type outboxFlags struct {
	tables tableFlags
	url    urlFlags
	filter outbox.Filter
	state  string
}

func (f *outboxFlags) add(flags *flag.FlagSet) {
	f.tables.add(flags)
	f.url.add(flags)
	flags.StringVar(&f.state, "state", "", "in this `state`: PENDING, PUBLISHING, PUBLISHED, BLOCKED or DEAD")
	flags.StringVar(&f.filter.Topic, "topic", "", "of this `topic`")
}

// complete takes the numbers from the arguments. restricts is whether anything says which rows are meant.
func (f *outboxFlags) complete(args []string) (restricts bool, err error) {
	for _, arg := range args {
		number, err := strconv.ParseInt(arg, 10, 64)
		if err != nil || number < 1 {
			return false, usagef("%s is no number of a row: want numbers, as the list shows them", shown(arg))
		}
		f.filter.Numbers = append(f.filter.Numbers, number)
	}
	f.filter.State = outbox.State(f.state)
	switch f.filter.State {
	case "", outbox.Pending, outbox.Publishing, outbox.Published, outbox.Blocked, outbox.Dead:
	default:
		return false, usagef("%s is no state: they are PENDING, PUBLISHING, PUBLISHED, BLOCKED and DEAD", shown(f.state))
	}
	return len(f.filter.Numbers) > 0 || f.filter.State != "" || f.filter.Topic != "", nil
}

// with opens the outbox and calls do.
func (f *outboxFlags) with(ctx context.Context, env *environment,
	do func(ctx context.Context, o *outbox.Operator) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.url.timeout)
	defer cancel()
	w, err := f.tables.wants(f.url.get(env), nil)
	switch {
	case err != nil:
		return err
	case w.dialect != schema.Postgres:
		return usagef("the outbox needs PostgreSQL")
	}
	db, err := f.url.open(ctx, env, w.dialect, false)
	if err != nil {
		return err
	}
	defer db.Close()
	return do(ctx, outbox.NewOperator(sqloutbox.NewDatabase(db), w.cfg))
}

var outboxList = command{
	name: "outbox list", args: "[number...]",
	about: "List events of the outbox in their order, without their values.",
	more: "The flags restrict what is listed; together they all must hold. -state BLOCKED lists what an operator has to look at.\n\n" +
		"example: einmal outbox list -state BLOCKED -topic orders",
	setup: func(flags *flag.FlagSet) action {
		var rows outboxFlags
		rows.add(flags)
		flags.IntVar(&rows.filter.Limit, "limit", outbox.DefaultLimit, "list so many at most")
		asJSON := flags.Bool("json", false, "print JSON, an object a line")
		return func(ctx context.Context, env *environment, args []string) error {
			if _, err := rows.complete(args); err != nil {
				return err
			}
			if rows.filter.Limit < 1 {
				return usagef("-limit is %d: make it at least 1", rows.filter.Limit)
			}
			return rows.with(ctx, env, func(ctx context.Context, o *outbox.Operator) error {
				list, err := o.List(ctx, rows.filter)
				if err != nil {
					return err
				}
				for _, row := range list {
					if *asJSON {
						err = printJSON(env.stdout, rowFactsOf(row), "")
					} else {
						err = showRow(env.stdout, row)
					}
					if err != nil {
						return err
					}
				}
				if !*asJSON {
					fmt.Fprintf(env.stdout, "listed: %d\n", len(list))
				}
				return nil
			})
		}
	},
}

func showRow(to io.Writer, r outbox.Row) error {
	_, err := fmt.Fprintf(to, "%d  %s  %s  %s  %s  attempts %d  claims %d\n", r.Number, r.CreatedAt.Format(time.RFC3339),
		r.State, plain(r.Event.Topic), plain(r.Event.ID), r.Attempts, r.Claims)
	if err == nil && r.LastError != "" {
		_, err = fmt.Fprintf(to, "    %s\n", plain(r.LastError))
	}
	return err
}

// rowFacts is a row in JSON, without key, value and headers.
type rowFacts struct {
	Number    int64     `json:"number"`
	EventID   string    `json:"event_id"`
	Topic     string    `json:"topic"`
	State     string    `json:"state"`
	Partition *int32    `json:"partition"` // that the event names
	Bucket    int       `json:"bucket"`
	CreatedAt time.Time `json:"created_at"`
	Attempts  int       `json:"attempts"`
	Claims    int       `json:"claims"`
	LastError string    `json:"last_error,omitempty"`
}

func rowFactsOf(r outbox.Row) rowFacts {
	return rowFacts{r.Number, plain(r.Event.ID), plain(r.Event.Topic), string(r.State), r.Event.Partition, r.Bucket,
		r.CreatedAt, r.Attempts, r.Claims, plain(r.LastError)}
}

var outboxShow = command{
	name: "outbox show", args: "number...",
	about: "Show events of the outbox, as JSON.",
	more: "With -message also the key, the value and the headers: each as {\"text\": ...} where it is UTF-8, and as {\"base64\": ...} where it is not.\n" +
		"Mind who looks over your shoulder.\n\n" +
		"example: einmal outbox show -message 4711",
	setup: func(flags *flag.FlagSet) action {
		var rows outboxFlags
		rows.tables.add(flags)
		rows.url.add(flags)
		withMessage := flags.Bool("message", false, "show key, value and headers too")
		return func(ctx context.Context, env *environment, args []string) error {
			if some, err := rows.complete(args); err != nil || !some {
				return cmp.Or(err, usagef("name the numbers of rows, as the list shows them"))
			}
			return rows.with(ctx, env, func(ctx context.Context, o *outbox.Operator) error {
				for _, number := range rows.filter.Numbers {
					row, err := o.Show(ctx, number)
					if err != nil {
						return err
					}
					var facts any = rowFactsOf(row)
					if *withMessage {
						message := messageOf(row.Event.Key, row.Event.Value)
						for _, h := range row.Event.Headers {
							message.Headers = append(message.Headers, headerOf(h.Key, h.Value))
						}
						facts = struct {
							rowFacts
							messageFacts
						}{rowFactsOf(row), message}
					}
					if err := printJSON(env.stdout, facts, indentedJSON); err != nil {
						return err
					}
				}
				return nil
			})
		}
	},
}
