package audit

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/internal/topicwindow"
)

// dialTimeout is how long it may take to reach a broker.
const dialTimeout = 30 * time.Second

// Run audits. It can run beside the service, and be repeated. The Report is nil if there is an error: then nothing is
// known.
//
// db needs no more than SELECT on the tables, and can be a replica. Run takes one of its connections.
func Run(ctx context.Context, kafka Kafka, db *sql.DB, cfg Config) (*Report, error) {
	cfg, err := cfg.withDefaults()
	if err = errors.Join(err, kafka.check()); err != nil {
		return nil, err
	}
	a := &audit{cfg: cfg, report: newReport(), placed: map[[16]byte]bool{},
		gatherer: newGatherer(cfg.TempDir, cfg.Rate, cfg.Progress)}
	a.report.Topic, a.report.Group, a.report.Consumer, a.report.Began = cfg.Topic, cfg.Group, cfg.Consumer,
		time.Now().UTC()
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
	*gatherer
	cfg       Config
	report    *Report
	log       *log
	committed map[int32]int64 // by the group; a partition without an entry has none
	tables    *tables
	placed    map[[16]byte]bool // hashes of the places at which dead letters are recorded
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
	if err := a.open(ctx, cluster); err != nil {
		return err
	}
	looked := time.Now()
	defer func() { err = errors.Join(err, a.close()) }()
	if err := a.read(ctx, looked); err != nil {
		return err
	}
	if err := a.compare(ctx); err != nil {
		return err
	}
	if a.cfg.Values {
		return a.log.values(ctx, a.report.Found)
	}
	return nil
}

// open looks at the committed offsets before it looks at anything else.
func (a *audit) open(ctx context.Context, cluster *topicwindow.Cluster) (err error) {
	if a.log, err = openLog(cluster, a.cfg.Topic); err != nil {
		return err
	}
	if a.committed, err = cluster.Committed(a.cfg.Group, a.cfg.Topic, a.log.numbers); err != nil {
		return err
	}
	if len(a.committed) == 0 {
		return fmt.Errorf("the group %q has committed no offset of the topic %q: check both names", a.cfg.Group, a.cfg.Topic)
	}
	return a.log.choose(ctx, a.cfg.From, a.cfg.To, a.cfg.offsets())
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
	err := a.log.window(ctx, a.gatherer, a.unreadable, func(rec *topicwindow.Record) error {
		f := a.messageFact(rec)
		return a.addFact(ctx, &f)
	})
	if err != nil {
		return err
	}
	if err := a.tables.caughtUp(ctx, looked); err != nil {
		return err
	}
	take := func(kind factKind) func(string) error {
		return func(event string) error { return a.addFact(ctx, &fact{id: a.tables.canonical(event), kind: kind}) }
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
	return a.log.tail(ctx, a.committed, func(rec *topicwindow.Record) error {
		f := a.messageFact(rec)
		f.kind = factReturns
		return a.addFact(ctx, &f)
	})
}

func (a *audit) addFact(ctx context.Context, f *fact) error {
	var rest [factLength]byte
	return a.add(ctx, f.id, f.append(rest[:0]))
}

// records reads them before the effects, or behind them: only then do hand-ons and places matter.
func (a *audit) records(ctx context.Context, kind factKind) error {
	return a.tables.records(ctx, func(event string, handOn bool) error {
		switch {
		case handOn && kind == factBefore:
			return nil
		case handOn:
			return a.addFact(ctx, &fact{id: deadletter.RedrivenID(event), kind: factHandOn})
		case kind == factRecord && deadletter.Reserved(event):
			a.placed[hash(event)] = true
		}
		return a.addFact(ctx, &fact{id: deadletter.RedrivenID(event), kind: kind})
	})
}

// compare has the judge go through all that was read.
func (a *audit) compare(ctx context.Context) error {
	j := &judge{report: a.report, rules: rules{
		committed: a.committed, effects: a.cfg.Effects != "", keep: a.cfg.Keep, now: a.report.Ended, examples: a.cfg.Examples,
		placed: a.isPlaced,
	}}
	err := a.each(ctx, func(id, rest []byte) error {
		f, err := decodeFact(id, rest)
		if err != nil {
			return err
		}
		return j.take(f)
	})
	if err != nil {
		return err
	}
	j.end()
	for _, part := range a.log.parts {
		p := &Partition{Part: *part, Committed: -1}
		if committed, ok := a.committed[p.Partition]; ok {
			p.Committed = committed
		}
		a.report.Partitions = append(a.report.Partitions, p)
		if p.Committed > p.End {
			a.report.Found.add(CommittedTooFar, a.cfg.Examples, func() Example {
				return Example{Places: []Place{{Partition: p.Partition, Offset: p.Committed}},
					Problem: fmt.Sprintf("the log ends at %d", p.End)}
			})
		}
	}
	return nil
}

// isPlaced reports whether a dead letter is recorded at the place of a message that has an id: its handler ended the
// transaction.
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
	a.report.Found.unreadable(rg, err, a.cfg.Examples)
}
