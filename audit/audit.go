package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/internal/topicwindow"
)

// dialTimeout is how long it may take to reach a broker.
const dialTimeout = 30 * time.Second

// Run audits. It can run beside the service, and be repeated. The Report is nil if there is an error: then nothing is known.
//
// db needs no more than SELECT on the tables, and can be a replica. Run takes one of its connections.
func Run(ctx context.Context, kafka Kafka, db *sql.DB, cfg Config) (*Report, error) {
	cfg, err := cfg.withDefaults()
	if len(kafka.Brokers) == 0 {
		err = errors.Join(err, errors.New("audit: Kafka.Brokers is empty: give the addresses of brokers"))
	}
	if err != nil {
		return nil, err
	}
	a := &audit{cfg: cfg, report: newReport(), placed: map[[16]byte]bool{}, pace: &pace{rate: cfg.Rate, begun: time.Now()}}
	a.report.Topic, a.report.Group, a.report.Consumer, a.report.Began = cfg.Topic, cfg.Group, cfg.Consumer, time.Now().UTC()
	if err := a.run(ctx, &kafka, db); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // what it cut short says less
		}
		return nil, fmt.Errorf("audit: %w", err)
	}
	return a.report, nil
}

// audit is a call of Run.
type audit struct {
	cfg    Config
	report *Report
	log    *log
	tables *tables
	sorter *sorter
	placed map[[16]byte]bool // hashes of the places at which dead letters are recorded
	pace   *pace

	mu       sync.Mutex
	facts    int64 // that were added
	progress Progress
	shown    time.Time
}

func (a *audit) run(ctx context.Context, kafka *Kafka, db *sql.DB) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("connect to the database: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if a.tables, err = openTables(ctx, conn, &a.cfg); err != nil {
		return err
	}
	cluster, err := dial(ctx, kafka)
	if err != nil {
		return err
	}
	defer func() { _ = cluster.Close() }()
	if a.log, err = openLog(ctx, cluster, &a.cfg); err != nil {
		return err
	}
	looked := time.Now()
	a.sorter = newSorter(a.cfg.TempDir, sortBytes)
	defer func() { err = errors.Join(err, a.sorter.close()) }()
	if err := a.read(ctx, looked); err != nil {
		return err
	}
	if err := a.compare(ctx); err != nil {
		return err
	}
	if a.cfg.Values {
		return a.log.values(ctx, a.report)
	}
	return nil
}

// dial does not try for ever. The connections end with ctx.
func dial(ctx context.Context, kafka *Kafka) (*topicwindow.Cluster, error) {
	ctx, cancel := context.WithCancel(ctx)
	timer := time.AfterFunc(dialTimeout, cancel)
	cluster, err := topicwindow.Dial(ctx, kafka.Brokers, kafka.security())
	if !timer.Stop() && err == nil {
		err = errors.Join(context.DeadlineExceeded, cluster.Close())
	}
	if err != nil {
		cancel()
		return nil, err
	}
	return cluster, nil
}

// read reads everything in the order that package doc explains.
func (a *audit) read(ctx context.Context, looked time.Time) error {
	if err := a.log.window(ctx, a); err != nil {
		return err
	}
	if err := a.tables.caughtUp(ctx, looked); err != nil {
		return err
	}
	take := func(kind factKind) func(string) error {
		return func(event string) error { return a.add(ctx, &fact{id: a.tables.canonical(event), kind: kind}) }
	}
	if a.cfg.Effects != "" {
		a.step("records", 0)
		if err := a.records(ctx, factBefore); err != nil {
			return err
		}
	}
	a.step("dead letters", 0)
	if err := a.tables.deadLetters(ctx, take(factDead)); err != nil {
		return err
	}
	if a.cfg.Effects != "" {
		a.step("effects", 0)
		if err := a.tables.effects(ctx, a.cfg.Effects, take(factEffect)); err != nil {
			return err
		}
	}
	a.step("records", 0)
	if err := a.records(ctx, factRecord); err != nil {
		return err
	}
	a.report.Ended = time.Now().UTC()
	a.step("what comes again", 0)
	if err := a.tables.returning(ctx, a.cfg.Topic, take(factReturns)); err != nil {
		return err
	}
	return a.log.tail(ctx, a)
}

// records reads them before the effects, or behind them: only then do hand-ons and places matter.
func (a *audit) records(ctx context.Context, kind factKind) error {
	return a.tables.records(ctx, func(event string, handOn bool) error {
		switch {
		case handOn && kind == factBefore:
			return nil
		case handOn:
			return a.add(ctx, &fact{id: event, kind: factHandOn})
		case kind == factRecord && deadletter.Reserved(event):
			a.placed[hash(event)] = true
		}
		return a.add(ctx, &fact{id: event, kind: kind})
	})
}

// compare has the judge go through all that was read.
func (a *audit) compare(ctx context.Context) error {
	a.report.Partitions = a.log.partitions
	j := &judge{report: a.report, rules: rules{
		committed: a.log.committed, effects: a.cfg.Effects != "", keep: a.cfg.Keep, now: a.report.Ended, examples: a.cfg.Examples,
		placed: a.isPlaced,
	}}
	a.step("comparing", a.facts)
	err := a.sorter.each(func(f fact) error {
		a.advance(1)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return j.take(f)
	})
	if err != nil {
		return err
	}
	j.end()
	for _, p := range a.log.partitions {
		if p.Committed > p.End {
			a.report.found(CommittedTooFar, a.cfg.Examples, func() Example {
				return Example{Places: []Place{{Partition: p.Partition, Offset: p.Committed}}, Problem: fmt.Sprintf("the log ends at %d", p.End)}
			})
		}
	}
	return nil
}

// isPlaced reports whether a dead letter is recorded at the place of a message that has an id: its handler ended the transaction.
func (a *audit) isPlaced(f *fact) bool {
	if len(a.placed) == 0 {
		return false
	}
	msg := &consumer.Message{Topic: a.cfg.Topic, TopicID: a.log.reader.TopicID(), Partition: f.partition, Offset: f.offset}
	if f.flags&flagUntimed == 0 {
		msg.Timestamp = time.UnixMilli(f.millis)
	}
	if a.placed[hash(deadletter.Place(msg))] {
		return true
	}
	id, ok := deadletter.PlaceUUID(msg)
	return ok && a.placed[hash(id)]
}

func hash(id string) (sum [16]byte) {
	whole := sha256.Sum256([]byte(id))
	copy(sum[:], whole[:])
	return sum
}

// unreadable notes where a partition cannot be decoded.
func (a *audit) unreadable(rg topicwindow.Range, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.report.found(Unreadable, a.cfg.Examples, func() Example {
		return Example{Places: []Place{{Partition: rg.Partition, Offset: rg.From}}, Problem: err.Error()}
	})
}

// add keeps a fact. It is safe for concurrent use.
func (a *audit) add(ctx context.Context, f *fact) error {
	if err := a.pace.wait(ctx); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.facts++
	a.advanceLocked(1)
	return a.sorter.add(f)
}

// pace keeps to Config.Rate.
type pace struct {
	rate float64

	mu    sync.Mutex
	begun time.Time
	taken int64
}

func (p *pace) wait(ctx context.Context) error {
	if p.rate <= 0 {
		return nil
	}
	p.mu.Lock()
	p.taken++
	delay := time.Until(p.begun.Add(time.Duration(float64(p.taken) / p.rate * float64(time.Second))))
	p.mu.Unlock()
	if delay < 10*time.Millisecond { // a timer for each row would be more work than the row
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(delay):
		return nil
	}
}

// step begins a part of the work.
func (a *audit) step(name string, total int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.progress, a.shown = Progress{Step: name, Total: total}, time.Time{}
	a.advanceLocked(0)
}

func (a *audit) advance(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.advanceLocked(n)
}

const (
	progressEvery = 500 * time.Millisecond
	progressRows  = 1024 // between two looks at the clock
)

func (a *audit) advanceLocked(n int64) {
	a.progress.Done += n
	if a.cfg.Progress == nil || a.progress.Done%progressRows != 0 || time.Since(a.shown) < progressEvery {
		return
	}
	a.shown = time.Now()
	a.cfg.Progress(a.progress)
}
