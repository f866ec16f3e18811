package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/schema"
)

// newestRecords is how many records are looked at: the table may have many millions.
const newestRecords = 20_000

// groupTables looks at the tables of the service.
type groupTables struct {
	db *sql.DB
	*wanted
}

func (t *groupTables) close() {
	if t != nil {
		_ = t.db.Close()
	}
}

// groupDatabase is what the database has. What could not be looked at has an error instead.
type groupDatabase struct {
	Records      []recordCount `json:"records"` // of the newest in processed_event
	RecordsError string        `json:"records_error,omitempty"`
	Dead         []deadCount   `json:"dead_letters"` // of the group
	DeadError    string        `json:"dead_letters_error,omitempty"`
	Outbox       []outboxCount `json:"outbox"` // without what was published
	OutboxError  string        `json:"outbox_error,omitempty"`
}

type recordCount struct {
	Consumer string    `json:"consumer"`
	Records  int64     `json:"records"`
	Newest   time.Time `json:"newest"`
}

type deadCount struct {
	Consumer string    `json:"consumer"`
	Kind     string    `json:"kind"`
	Letters  int64     `json:"letters"`
	Newest   time.Time `json:"newest"`
}

type outboxCount struct {
	State  string    `json:"state"`
	Rows   int64     `json:"rows"`
	Oldest time.Time `json:"oldest"`
}

// look counts.
func (t *groupTables) look(ctx context.Context, group string) *groupDatabase {
	d := &groupDatabase{Records: []recordCount{}, Dead: []deadCount{}, Outbox: []outboxCount{}}
	d.RecordsError = t.each(ctx, func(scan func(...any) error) error {
		var c recordCount
		err := scan(&c.Consumer, &c.Records, &when{&c.Newest})
		d.Records = append(d.Records, c)
		return err
	}, `select consumer_id, count(*), max(processed_at) from (select consumer_id, processed_at from `+
		t.name("processed_event")+
		fmt.Sprintf(` order by processed_at desc limit %d) newest group by consumer_id order by 2 desc, 1`, newestRecords))
	d.DeadError = t.each(ctx, func(scan func(...any) error) error {
		var c deadCount
		err := scan(&c.Consumer, &c.Kind, &c.Letters, &when{&c.Newest})
		d.Dead = append(d.Dead, c)
		return err
	}, `select consumer_id, kind, count(*), max(died_at) from `+t.name("dead_message")+
		` where group_id = $1 group by consumer_id, kind order by 3 desc, 1, 2`, group)
	if t.dialect != schema.Postgres {
		d.OutboxError = "the outbox needs PostgreSQL"
		return d
	}
	d.OutboxError = t.each(ctx, func(scan func(...any) error) error {
		var c outboxCount
		err := scan(&c.State, &c.Rows, &when{&c.Oldest})
		d.Outbox = append(d.Outbox, c)
		return err
	}, `select status, count(*), min(created_at) from `+t.name("outbox_event")+
		` where status in ('PENDING', 'PUBLISHING', 'BLOCKED', 'DEAD') group by status order by status`)
	return d
}

// each calls f for each row. It answers with what went wrong.
func (t *groupTables) each(ctx context.Context, f func(scan func(...any) error) error, query string,
	args ...any) string {
	err := func() error {
		rows, err := t.db.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := f(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	}()
	if err != nil {
		return redact.Text(err.Error(), redact.MaxError)
	}
	return ""
}

// name is that of a table in a statement.
func (t *groupTables) name(table string) string {
	name := pgx.Identifier{table}
	if other := t.cfg.Tables[table]; other != "" {
		name[0] = other
	}
	if t.cfg.Schema != "" {
		name = append(pgx.Identifier{t.cfg.Schema}, name...)
	}
	return name.Sanitize()
}

// when scans a time, which SQLite has as text.
type when struct{ to *time.Time }

// Scan implements sql.Scanner.
func (w *when) Scan(value any) (err error) {
	switch v := value.(type) {
	case time.Time:
		*w.to = v.UTC()
	case string:
		*w.to, err = time.Parse(time.RFC3339Nano, v)
	default:
		err = fmt.Errorf("a time is a %T", value)
	}
	return err
}

// print shows the counts as tables.
func (d *groupDatabase) print(b *bytes.Buffer, now time.Time) {
	since := func(t time.Time) string { return ago(max(0, now.Sub(t).Seconds())) + " ago" }
	part := func(title, failed string, n int, header string, row func(i int) string) {
		if failed != "" {
			fmt.Fprintf(b, "\n%s: not known: %s\n", title, plain(failed))
			return
		}
		if n == 0 {
			fmt.Fprintf(b, "\n%s: none\n", title)
			return
		}
		fmt.Fprintf(b, "\n%s:\n", title)
		w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, header)
		for i := range n {
			fmt.Fprintln(w, row(i))
		}
		_ = w.Flush() // to memory
	}
	part(fmt.Sprintf("records, among the newest %d of the table", newestRecords), d.RecordsError, len(d.Records),
		"  consumer\trecords\tnewest", func(i int) string {
			r := d.Records[i]
			return fmt.Sprintf("  %s\t%d\t%s", plain(r.Consumer), r.Records, since(r.Newest))
		})
	part("dead letters of the group", d.DeadError, len(d.Dead), "  consumer\tkind\tletters\tnewest", func(i int) string {
		r := d.Dead[i]
		return fmt.Sprintf("  %s\t%s\t%d\t%s", plain(r.Consumer), plain(r.Kind), r.Letters, since(r.Newest))
	})
	part("outbox, what was not published", d.OutboxError, len(d.Outbox), "  state\tevents\toldest", func(i int) string {
		r := d.Outbox[i]
		return fmt.Sprintf("  %s\t%d\t%s", plain(r.State), r.Rows, since(r.Oldest))
	})
}
