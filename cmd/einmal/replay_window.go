package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/topicwindow"
	"github.com/einmal-go/einmal/schema"
)

// messageCounts are numbers of messages.
type messageCounts struct {
	Read        int64 `json:"read"`
	Recorded    int64 `json:"recorded"`
	NotRecorded int64 `json:"not_recorded"`
	WithoutID   int64 `json:"without_id"`
	TooOld      int64 `json:"too_old"`
}

// windowCounts are those of a partition.
type windowCounts struct {
	Partition int32 `json:"partition"`
	From      int64 `json:"from"`
	To        int64 `json:"to"`
	Unread    int64 `json:"unread,omitempty"` // offsets behind To that wait for the end of an open transaction
	messageCounts
}

func (c *messageCounts) add(other *windowCounts) {
	c.Read += other.Read
	c.Recorded += other.Recorded
	c.NotRecorded += other.NotRecorded
	c.WithoutID += other.WithoutID
	c.TooOld += other.TooOld
}

// window looks up what it reads.
type window struct {
	id       func(*consumer.Message) (string, error)
	keep     time.Duration // 0 for ever
	consumer string
	topicID  consumer.TopicID
	records  *records
}

// lookUpBatch is how many ids are looked up at once.
const lookUpBatch = 1000

// count reads a part of a partition.
func (w *window) count(ctx context.Context, reader *topicwindow.Reader, rg topicwindow.Range) (*windowCounts, error) {
	counts := &windowCounts{Partition: rg.Partition, From: rg.From}
	ids := make([]string, 0, lookUpBatch)
	flush := func() error {
		n, err := w.records.of(ctx, ids)
		if err == nil && n == 0 && counts.Recorded == 0 {
			err = w.records.others(ctx, ids)
		}
		counts.Recorded += n
		counts.NotRecorded += int64(len(ids)) - n
		ids = ids[:0]
		return err
	}
	at, err := reader.Read(ctx, rg, func(rec *topicwindow.Record) error {
		counts.Read++
		msg := w.message(rec)
		if w.keep > 0 && (msg.Timestamp.IsZero() || time.Since(msg.Timestamp) > w.keep) {
			counts.TooOld++
			return nil
		}
		id, ok := w.idOf(msg)
		if !ok {
			counts.WithoutID++
			return nil
		}
		if ids = append(ids, id); len(ids) == lookUpBatch {
			return flush()
		}
		return nil
	})
	counts.To, counts.Unread = at, rg.To-at
	if err == nil {
		err = flush()
	}
	return counts, err
}

// idOf reports whether there is one that can be recorded.
func (w *window) idOf(msg *consumer.Message) (id string, ok bool) {
	id, err := w.id(msg)
	return id, err == nil && w.records.take(id)
}

func (w *window) message(rec *topicwindow.Record) *consumer.Message {
	m := &consumer.Message{
		Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Key: rec.Key, Value: rec.Value,
		Timestamp: rec.Timestamp, TopicID: w.topicID,
	}
	for _, h := range rec.Headers {
		m.Headers = append(m.Headers, consumer.Header{Key: string(h.Key), Value: h.Value})
	}
	return m
}

// records are those of a consumer in processed_event.
type records struct {
	db       *sql.DB
	consumer string
	uuid     bool // ids are of type uuid: others have no record, and cannot have one
	query    string

	otherQuery string
	other      map[string]int64 // consumers that have records of the same ids, and of how many
	looked     int              // ids of which that was asked
}

// newRecords looks for the table. Its query casts ids to the type of the column, so that the index serves it.
func newRecords(ctx context.Context, db *sql.DB, cfg *schema.Config, consumer string) (*records, error) {
	name := pgx.Identifier{"processed_event"}
	if other := cfg.Tables["processed_event"]; other != "" {
		name[0] = other
	}
	if cfg.Schema != "" {
		name = append(pgx.Identifier{cfg.Schema}, name...)
	}
	table := name.Sanitize()
	var kind string
	err := db.QueryRowContext(ctx,
		`select coalesce((select format_type(atttypid, null) from pg_attribute where attrelid = to_regclass($1) and attname = 'event_id' and not attisdropped), '')`, table).Scan(&kind)
	if err != nil {
		return nil, fmt.Errorf("look for the table %s: %w", table, err)
	}
	if kind == "" {
		return nil, fmt.Errorf("there is no table %s with a column event_id: set -schema and -table as the service's store has them", table)
	}
	return &records{
		db: db, consumer: consumer, uuid: kind == "uuid", other: map[string]int64{},
		query:      fmt.Sprintf(`select count(*) from unnest($1::text[]) as w (id) where exists (select from %s where event_id = w.id::%s and consumer_id = $2)`, table, kind),
		otherQuery: fmt.Sprintf(`select p.consumer_id, count(*) from unnest($1::text[]) as w (id) join %s as p on p.event_id = w.id::%s where p.consumer_id <> $2 group by p.consumer_id`, table, kind),
	}, nil
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}$`)

// take reports whether an id can be recorded.
func (r *records) take(id string) bool {
	return dedupstore.Key{Consumer: r.consumer, Event: id}.Validate() == nil && (!r.uuid || uuid.MatchString(id))
}

// of counts those that are recorded, in a transaction that cannot write.
func (r *records) of(ctx context.Context, ids []string) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, fmt.Errorf("look up ids: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	if err := tx.QueryRowContext(ctx, r.query, ids, r.consumer).Scan(&n); err != nil {
		return 0, fmt.Errorf("look up ids: %w", err)
	}
	return n, nil
}

// lookedForOthers bounds of how many ids others asks.
const lookedForOthers = 10 * lookUpBatch

// others finds the consumers that have records of these ids. It is asked while the one that is meant has none: its name
// may be mistyped.
func (r *records) others(ctx context.Context, ids []string) error {
	if len(ids) == 0 || r.looked >= lookedForOthers {
		return nil
	}
	r.looked += len(ids)
	tx, err := r.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return fmt.Errorf("look for other consumers: %w", err)
	}
	defer func() { _ = tx.Rollback() }()
	rows, err := tx.QueryContext(ctx, r.otherQuery, ids, r.consumer)
	if err != nil {
		return fmt.Errorf("look for other consumers: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var n int64
		if err := rows.Scan(&name, &n); err != nil {
			return fmt.Errorf("look for other consumers: %w", err)
		}
		r.other[name] += n
	}
	return rows.Err()
}

// instead says which consumers have records of the window's ids, the one with the most first; "" if none has.
func (r *records) instead() string {
	names := slices.SortedFunc(maps.Keys(r.other), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.other[b], r.other[a]), strings.Compare(a, b))
	})
	var list []string
	for _, name := range names[:min(len(names), 5)] {
		list = append(list, fmt.Sprintf("%s (%d of %d)", plain(name), r.other[name], r.looked))
	}
	return strings.Join(list, ", ")
}
