package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/einmal-go/einmal/schema"
)

var erase = command{
	name:  "erase",
	about: "Find what the tables hold of a key, an event or a principal, and delete it.",
	more: "It looks into dead_message (-key, -event), outbox_event (-key, -event) and idempotency_key (-key is the Idempotency-Key, -principal whose answers\n" +
		"they are), as far as they are there. What any of the flags names is meant; each can be repeated. It says how much there is, and asks. Events of\n" +
		"the outbox that are not sent yet stay, unless -unsent is given: without them consumers never learn of the change. The exit code is 1 if some stay.\n" +
		"Records (processed_event) stay: they have the event's id and nothing of the message, and without them an event could take effect again.\n\n" +
		"example: einmal erase -key customer-4711 -principal customer-4711 -dry-run",
	setup: func(flags *flag.FlagSet) action {
		var e eraser
		e.tables.add(flags)
		e.url.add(flags)
		unlimited(flags)
		flags.Var(&e.keys, "key", "the message's `key`, or the request's Idempotency-Key")
		flags.Var(&e.events, "event", "the event's `id`")
		flags.Var(&e.principals, "principal", "the `principal` whose answers to requests are kept")
		flags.BoolVar(&e.unsent, "unsent", false, "events that are not sent yet too")
		dry := flags.Bool("dry-run", false, "say how much there is, and delete nothing")
		yes := confirmFlag(flags)
		return func(ctx context.Context, env *environment, args []string) error {
			switch {
			case len(args) > 0:
				return usagef("erase takes flags only: -key, -event, -principal")
			case len(e.keys)+len(e.events)+len(e.principals) == 0:
				return usagef("say whose: by -key, -event or -principal")
			}
			return e.run(ctx, env, *dry, *yes)
		}
	},
}

// texts collects the values of a flag.
type texts []string

func (t *texts) String() string { return "" }

func (t *texts) Set(text string) error {
	if text == "" {
		return fmt.Errorf("it is empty")
	}
	*t = append(*t, text)
	return nil
}

type eraser struct {
	tables                   tableFlags
	url                      urlFlags
	keys, events, principals texts
	unsent                   bool
}

// holding is a table that may hold something of a subject.
type holding struct {
	table   string // its name in the files
	matches []match
}

// match is what a column must be: any of the values.
type match struct {
	column string
	values []any
}

// holdings are the tables in which the flags name something.
func (e *eraser) holdings(dialect schema.Dialect) []holding {
	all := []holding{
		{"dead_message", []match{{"key", asBytes(e.keys)}, {"event_id", asTexts(e.events)}}},
		{"outbox_event", []match{{"partition_key", asBytes(e.keys)}, {"event_id", asTexts(e.events)}}},
		{"idempotency_key", []match{{"key", asTexts(e.keys)}, {"scope", scopes(e.principals)}}},
	}
	return slices.DeleteFunc(all, func(h holding) bool {
		return !slices.Contains(dialect.Tables(), h.table) ||
			!slices.ContainsFunc(h.matches, func(m match) bool { return len(m.values) > 0 })
	})
}

// where is the condition, with what it takes.
func (h *holding) where(dialect schema.Dialect) (condition string, args []any) {
	mark := "?"
	if dialect == schema.Postgres {
		mark = "$"
	}
	var either []string
	for _, m := range h.matches {
		for _, value := range m.values {
			args = append(args, value)
			either = append(either, fmt.Sprintf("%s = %s%d", m.column, mark, len(args)))
		}
	}
	return "(" + strings.Join(either, " or ") + ")", args
}

func asBytes(list []string) (values []any) {
	for _, text := range list {
		values = append(values, []byte(text))
	}
	return values
}

func asTexts(list []string) (values []any) {
	for _, text := range list {
		values = append(values, text)
	}
	return values
}

// scopes are the principals as idempotency.Handler stores them: by their names, or by hashes.
func scopes(principals []string) (values []any) {
	for _, name := range principals {
		sum := sha256.Sum256([]byte(name))
		values = append(values, name, "sha256:"+hex.EncodeToString(sum[:]))
	}
	return values
}

// run looks, asks and deletes.
func (e *eraser) run(ctx context.Context, env *environment, dry, yes bool) error {
	if e.url.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, e.url.timeout)
		defer cancel()
	}
	w, err := e.tables.wants(e.url.get(env), nil)
	if err != nil {
		return err
	}
	db, err := e.url.open(ctx, env, w.dialect, false)
	if err != nil {
		return err
	}
	defer db.Close()
	found, staying, err := e.each(ctx, env, db, w, false)
	if err != nil {
		return err
	}
	if found > 0 && !dry {
		if err := confirm(env, yes, fmt.Sprintf("delete %d rows for good?", found)); err != nil {
			return err
		}
		if _, staying, err = e.each(ctx, env, db, w, true); err != nil {
			return err
		}
	}
	if staying > 0 {
		fmt.Fprintf(env.stderr, "einmal: %d events of the outbox stay, which are not sent yet: call it again when they are, or with -unsent\n", staying)
		return errNo
	}
	return nil
}

// each counts what is there, or deletes it, table by table. staying is how many events of the outbox are left.
func (e *eraser) each(ctx context.Context, env *environment, db *sql.DB, w *wanted, deleting bool) (n, staying int64,
	err error) {
	for _, h := range e.holdings(w.dialect) {
		there, err := exists(ctx, db, w, h.table)
		if err != nil {
			return n, staying, err
		}
		if !there {
			fmt.Fprintf(env.stdout, "%s: is not there\n", h.table)
			continue
		}
		condition, args := h.where(w.dialect)
		from := " from " + tableName(w, h.table) + " where " + condition
		if h.table == "outbox_event" {
			stays := " and status not in ('PUBLISHED', 'DEAD')"
			if e.unsent {
				stays = " and status = 'PUBLISHING'" // a relay has it in hand
			}
			var left int64
			if err := db.QueryRowContext(ctx, "select count(*)"+from+stays, args...).Scan(&left); err != nil {
				return n, staying, err
			}
			staying += left
			from += strings.NewReplacer(" not in ", " in ", "status = ", "status <> ").Replace(stays)
		}
		rows, said, err := e.one(ctx, db, from, args, deleting)
		if err != nil {
			return n, staying, fmt.Errorf("%s: %w", h.table, err)
		}
		n += rows
		fmt.Fprintf(env.stdout, "%s: %s %d\n", h.table, said, rows)
	}
	return n, staying, nil
}

func (e *eraser) one(ctx context.Context, db *sql.DB, from string, args []any, deleting bool) (rows int64, said string,
	err error) {
	if !deleting {
		err = db.QueryRowContext(ctx, "select count(*)"+from, args...).Scan(&rows)
		return rows, "found", err
	}
	res, err := db.ExecContext(ctx, "delete"+from, args...)
	if err != nil {
		return 0, "", err
	}
	rows, err = res.RowsAffected()
	return rows, "deleted", err
}

// exists reports whether a service uses the table at all.
func exists(ctx context.Context, db *sql.DB, w *wanted, table string) (there bool, err error) {
	if w.dialect == schema.Postgres {
		err = db.QueryRowContext(ctx, "select to_regclass($1) is not null", tableName(w, table)).Scan(&there)
		return there, err
	}
	err = db.QueryRowContext(ctx, "select count(*) > 0 from sqlite_master where type = 'table' and name = ?1",
		cmp.Or(w.cfg.Tables[table], table)).Scan(&there)
	return there, err
}
