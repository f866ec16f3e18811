package audit

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/topicwindow"
	"github.com/einmal-go/einmal/schema"
)

// leeway is how long a relay may take from the moment at which it sends an event to the one at which the row says so,
// and how far the clocks of relays and database may be apart.
const leeway = 10 * time.Minute

// Outbox audits what relays have sent: each row of the outbox that is PUBLISHED stands in its topic, and the rows of a
// key stand there in their order. It can run beside the relays, and be repeated. The report is nil if there is an
// error: then nothing is known.
//
// The rows are read first, the topic behind them, so that a row that is PUBLISHED has its event in what is read. What
// was not in the topic yet before the rows were read has no row that must have been seen.
//
// db is of PostgreSQL, needs no more than SELECT on the table, and can be a replica. Outbox takes one of its
// connections.
func Outbox(ctx context.Context, kafka Kafka, db *sql.DB, cfg OutboxConfig) (*OutboxReport, error) {
	cfg, err := cfg.withDefaults()
	if err = errors.Join(err, kafka.check()); err != nil {
		return nil, err
	}
	o := &outboxAudit{cfg: cfg, report: newOutboxReport(), gatherer: newGatherer(cfg.TempDir, cfg.Rate, cfg.Progress)}
	o.report.Topic, o.report.Began = cfg.Topic, time.Now().UTC()
	if err := o.run(ctx, &kafka, db); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // what it cut short says less
		}
		return nil, fmt.Errorf("audit: %w", err)
	}
	return o.report, nil
}

// outboxAudit is a call of Outbox.
type outboxAudit struct {
	*gatherer
	cfg    OutboxConfig
	report *OutboxReport
	log    *log
	tables *tables
	ends   map[int32]int64 // of the partitions, before the rows were read
}

func (o *outboxAudit) run(ctx context.Context, kafka *Kafka, db *sql.DB) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if o.tables, err = openOutbox(ctx, conn, o.cfg.Tables); err != nil {
		return err
	}
	cluster, err := dial(ctx, kafka)
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	if o.log, err = openLog(cluster, o.cfg.Topic); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if err := o.read(ctx); err != nil {
		return err
	}
	if err := o.compare(ctx); err != nil {
		return err
	}
	if o.cfg.Values {
		return o.log.values(ctx, o.report.Found)
	}
	return nil
}

// read reads the rows, and the topic behind them.
func (o *outboxAudit) read(ctx context.Context) (err error) {
	if o.ends, err = o.log.ends(ctx); err != nil {
		return err
	}
	if err := o.tables.caughtUp(ctx, time.Now()); err != nil {
		return err
	}
	o.step("rows", 0)
	if err := o.tables.outboxRows(ctx, o.cfg.Topic, o.early(), o.takeRow(ctx)); err != nil {
		return err
	}
	o.report.Ended = time.Now().UTC()
	if err := o.log.choose(ctx, o.early(), o.late(), nil); err != nil {
		return err
	}
	return o.log.window(ctx, o.gatherer, o.unreadable, func(rec *topicwindow.Record) error {
		s := o.sentFact(rec)
		var rest [sentLength]byte
		return o.add(ctx, s.id, s.append(rest[:0]))
	})
}

// early and late are what is read of the topic: events of the window's rows may have been sent before, and clocks
// differ.
func (o *outboxAudit) early() time.Time { return moved(o.cfg.From, -leeway) }
func (o *outboxAudit) late() time.Time  { return moved(o.cfg.To, leeway) }

func moved(t time.Time, by time.Duration) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(by)
}

func (o *outboxAudit) takeRow(ctx context.Context) func(*rowFact) error {
	from, to := int64(math.MinInt64), int64(math.MaxInt64)
	if !o.cfg.From.IsZero() {
		from = o.cfg.From.UnixMilli()
	}
	if !o.cfg.To.IsZero() {
		to = o.cfg.To.UnixMilli()
	}
	return func(r *rowFact) error {
		o.report.Rows++
		switch r.state {
		case rowPublished:
			r.judged = r.published >= from && r.published < to
			if r.judged {
				o.report.Published++
			}
		case rowBlocked:
			o.report.Blocked++
		case rowDead:
			o.report.Discarded++
		case rowWaiting:
			o.report.Waiting++
		}
		var rest [rowLength]byte
		return o.add(ctx, r.id, r.append(rest[:0]))
	}
}

// sentFact is what a message of the topic has to say of its id.
func (o *outboxAudit) sentFact(rec *topicwindow.Record) sentFact {
	s := sentFact{partition: rec.Partition, offset: rec.Offset, millis: rec.Timestamp.UnixMilli(), value: valueHash(rec)}
	if rec.Timestamp.IsZero() || s.millis < 0 {
		s.millis, s.flags = 0, flagUntimed
	}
	id, err := eventIDHeader(messageOf(rec))
	if err != nil {
		id = fmt.Sprintf("\x00%d/%d", rec.Partition, rec.Offset) // no row has such an id
		s.flags |= flagNoID
	}
	s.id = id
	return s
}

// eventIDHeader is where relays put the id.
var eventIDHeader = consumer.HeaderID(consumer.DefaultEventIDHeader)

func (o *outboxAudit) unreadable(rg topicwindow.Range, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.report.Found.unreadable(rg, err, o.cfg.Examples)
}

// compare has the events judged one by one, and then those of each key.
func (o *outboxAudit) compare(ctx context.Context) (err error) {
	rules, err := o.rules(ctx)
	if err != nil {
		return err
	}
	keys := newGatherer(o.cfg.TempDir, 0, o.cfg.Progress)
	defer func() { err = errors.Join(err, keys.close()) }()
	j := &outboxJudge{outboxRules: *rules, report: o.report, ordered: func(key [16]byte, p *placed) error {
		return keys.add(ctx, string(key[:]), p.append(nil))
	}}
	if err := o.each(ctx, j.take); err != nil {
		return err
	}
	if err := j.end(); err != nil {
		return err
	}
	order := &orderJudge{report: o.report, examples: o.cfg.Examples}
	return keys.each(ctx, order.take)
}

// rules are looked up when all has been read, because retention deletes meanwhile.
func (o *outboxAudit) rules(ctx context.Context) (*outboxRules, error) {
	r := &outboxRules{ends: o.ends, since: map[int32]int64{}, keep: o.cfg.Keep, read: o.report.Ended,
		examples: o.cfg.Examples}
	for _, p := range o.log.parts {
		begins, err := o.log.begins(ctx, p.Partition)
		if err != nil {
			return nil, err
		}
		if begins != 0 {
			r.deleted = max(r.deleted, begins)
			r.since[p.Partition] = begins
		}
		if early := o.early(); p.From > 0 && !early.IsZero() {
			r.since[p.Partition] = max(r.since[p.Partition], early.UnixMilli())
		}
		r.unread = r.unread || p.Unread > 0
	}
	o.report.Partitions = o.log.parts
	return r, nil
}

// OutboxConfig says what of the outbox is audited.
type OutboxConfig struct {
	// Topic is where the events went. Required.
	Topic string

	// From and To are a window of time: the rows that relays have marked as PUBLISHED from From on up to, but without, To.
	// Zero is all that there is.
	From, To time.Time

	// Keep is how long relays keep what they have sent, as relay.Config.Keep: an event of the topic that is not older, and
	// has no row, is WithoutRow. Defaults to 0: rows may be deleted at once, as single-phase relays do by default, so that
	// no event is WithoutRow.
	Keep time.Duration

	// Tables says where the table stands, as for the writers. Nil means outbox_event, on the search_path.
	Tables *schema.Config

	// Examples, Values, Rate, TempDir and Progress are as in Config. A step is "rows", "messages" or "comparing".
	Examples int
	Values   bool
	Rate     float64
	TempDir  string
	Progress func(Progress)
}

// withDefaults checks and completes.
func (c OutboxConfig) withDefaults() (OutboxConfig, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("audit: OutboxConfig."+format, args...))
	}
	if c.Topic == "" {
		bad("Topic is empty: name the topic")
	}
	if !c.From.IsZero() && !c.To.IsZero() && !c.From.Before(c.To) {
		bad("From is not before To: nothing lies between them")
	}
	if c.Keep < 0 {
		bad("Keep is %v: make it as long as rows are kept, or 0 if they are deleted at once", c.Keep)
	}
	if c.Rate < 0 {
		bad("Rate is %v: make it positive, or 0 for no limit", c.Rate)
	}
	if c.Examples == 0 {
		c.Examples = defaultExamples
	}
	if c.Tables == nil {
		c.Tables = &schema.Config{}
	}
	return c, errors.Join(errs...)
}
