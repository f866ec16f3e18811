package deadletter

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
)

// RedriveConfig is what can be chosen about Redrive. Nil means all defaults, which need a Filter: see Redrive.
type RedriveConfig struct {
	// Filter says which dead letters. Its Consumer is required: a handler is that of one consumer. Some kinds must be
	// named, by Kind or by IDs: KindTooOld, because the record of such an event may have been deleted and its effect be
	// there; KindTxEnded, because its handler may have committed a part of it; KindCrashLoop, because it may end this
	// process, too.
	Filter Filter

	// AnyConsumer says that the handler is for the dead letters of all consumers, so that Filter.Consumer may be empty:
	// for functions that move messages on, as package forward does. Leave it false for a consumer's own handler.
	AnyConsumer bool

	// DryRun reports what would be redriven, and runs nothing.
	DryRun bool

	// PerSecond is how many redrives begin in a second, at most. Defaults to 10: what has failed together is likely to
	// fall upon the same service again. Negative means no limit.
	PerSecond float64

	// Limit ends the redrive after so many dead letters. Defaults to 0: no limit.
	Limit int

	// Failures ends the redrive after so many that have failed. Defaults to 0: no limit.
	Failures int

	// Each is called after each dead letter, with what became of it: nil, the handler's error, or one that wraps ErrTaken.
	// rec has no Key, Value and Headers. Optional.
	Each func(rec *Record, err error)
}

const defaultPerSecond = 10

// Report is what a Redrive came to.
type Report struct {
	Found    int // dead letters of the filter that were looked at
	Redriven int // whose handler's effect is committed, and which are gone
	Failed   int // whose handler failed, or which could not be read: they are still there
	Held     int // of a kind that must be named, and was not: see RedriveConfig.Filter
	Gone     int // that somebody else has redriven or discarded, or is redriving
}

// Source is a table as Redrive needs it.
type Source[Tx any] interface {
	Taker[Tx]
	Keeper
}

// Redrive runs h on dead letters, the oldest first, but those of a partition in the order in which they stood there,
// each in a transaction of store that also takes the dead letter out of its table: its effect is there when the dead
// letter is gone, and not before. It can be interrupted anywhere and run again, and several may run at once: a dead
// letter takes effect once. h is the function that stands in the consumer's Dedup; it finds the same key by
// dedupstore.KeyFrom, and a message whose EventID is the key's.
//
// A handler that fails or panics leaves its dead letter where it is: the failure is counted there, and the others go
// on. What the event is not to blame for, a database that is away or a table that is missing, ends Redrive with an
// error, as does ctx. The Report counts what was done until then.
func Redrive[Tx any](ctx context.Context, store dedupstore.Transactor[Tx], source Source[Tx], h consumer.TxHandler[Tx],
	cfg *RedriveConfig) (Report, error) {
	r := redrive[Tx]{store: store, source: source, h: h, pace: pace{}}
	if cfg != nil {
		r.cfg = *cfg
	}
	if err := r.validate(); err != nil {
		return Report{}, err
	}
	err := r.run(ctx)
	if err != nil {
		err = fmt.Errorf("deadletter: redrive: %w", err)
	}
	return r.report, err
}

type redrive[Tx any] struct {
	store  dedupstore.Transactor[Tx]
	source Source[Tx]
	h      consumer.TxHandler[Tx]
	cfg    RedriveConfig
	pace   pace
	report Report
}

func (r *redrive[Tx]) validate() error {
	var errs []error
	if r.store == nil {
		errs = append(errs, errors.New("deadletter.Redrive: the store is nil: pass the one that the consumer's Dedup has"))
	}
	if r.source == nil {
		errs = append(errs, errors.New("deadletter.Redrive: the table is nil: pass pgxdeadletter.New(pool, nil), for example"))
	}
	if r.h == nil {
		errs = append(errs, errors.New("deadletter.Redrive: the handler is nil: pass the function that stands in the consumer's Dedup"))
	}
	if r.cfg.Filter.Consumer == "" && !r.cfg.AnyConsumer {
		errs = append(errs, errors.New("deadletter.Redrive: RedriveConfig.Filter.Consumer is empty: name the consumer whose handler this is, by default \"group/topic\""))
	}
	if r.cfg.PerSecond == 0 {
		r.cfg.PerSecond = defaultPerSecond
	}
	if r.cfg.PerSecond > 0 {
		r.pace.interval = time.Duration(min(float64(time.Second)/r.cfg.PerSecond, math.MaxInt64/2))
	}
	return errors.Join(errs...)
}

// page is how many dead letters are listed at once.
const page = 100

func (r *redrive[Tx]) run(ctx context.Context) error {
	jumbled, err := r.survey(ctx)
	if err != nil {
		return err
	}
	if err := r.inOrder(ctx, &jumbled); err != nil {
		return err
	}
	for after := int64(0); !r.done(); {
		list, err := r.source.List(ctx, r.cfg.Filter, after, page)
		if err != nil || len(list) == 0 {
			return err
		}
		after = list[len(list)-1].ID
		if err := r.all(ctx, slices.DeleteFunc(list, jumbled.has)); err != nil {
			return err
		}
	}
	return nil
}

// all redrives the dead letters of a list.
func (r *redrive[Tx]) all(ctx context.Context, list []*Record) error {
	for _, rec := range list {
		if r.done() {
			return nil
		}
		if err := r.next(ctx, rec); err != nil {
			return err
		}
	}
	return nil
}

func (r *redrive[Tx]) done() bool {
	return r.cfg.Limit > 0 && r.report.Found >= r.cfg.Limit || r.cfg.Failures > 0 && r.report.Failed >= r.cfg.Failures
}

// next redrives one dead letter. Its error ends the redrive.
func (r *redrive[Tx]) next(ctx context.Context, rec *Record) error {
	if r.cfg.Filter.Holds(rec.Kind) {
		r.report.Held++
		return nil
	}
	if !r.cfg.DryRun {
		if err := r.pace.wait(ctx); err != nil {
			return err
		}
	}
	r.report.Found++
	if r.cfg.DryRun {
		r.tell(rec, nil)
		return nil
	}
	var msg *consumer.Message
	err := r.store.InTx(ctx, func(ctx context.Context, tx Tx) (err error) {
		full, err := r.source.Take(ctx, tx, rec.ID)
		if err != nil {
			return err
		}
		msg = full.Message()
		return handle(ctx, tx, r.h, full, msg)
	})
	switch {
	case err == nil:
		r.report.Redriven++
	case errors.Is(err, ErrTaken):
		r.report.Gone++
	case ctx.Err() != nil, !blamesEvent(err):
		return fmt.Errorf("dead letter %d: %w", rec.ID, err)
	default:
		r.report.Failed++
		if failed := r.source.Failed(ctx, rec.ID, Text(err, msg)); failed != nil {
			return failed
		}
	}
	r.tell(rec, err)
	return nil
}

func (r *redrive[Tx]) tell(rec *Record, err error) {
	if r.cfg.Each != nil {
		r.cfg.Each(rec, err)
	}
}

// handle runs h. A panic becomes an error, so that it counts as this dead letter's.
func handle[Tx any](ctx context.Context, tx Tx, h consumer.TxHandler[Tx], rec *Record,
	msg *consumer.Message) (err error) {
	if rec.LeftOut {
		return ErrLeftOut
	}
	defer func() {
		if v := recover(); v != nil {
			err = &consumer.Panic{Value: v, Stack: debug.Stack()}
		}
	}()
	return h(dedupstore.WithKey(consumer.WithMessage(ctx, msg), rec.DedupKey()), tx, msg)
}

// blamesEvent reports whether err may come from the message or its handler, rather than from the database.
func blamesEvent(err error) bool {
	class := dedupstore.ClassOf(err)
	return class == dedupstore.Unclassified || class == dedupstore.Permanent
}

// pace spaces out what must not come at once.
type pace struct {
	interval time.Duration // 0 for none
	next     time.Time
}

func (p *pace) wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	now := time.Now()
	if d := p.next.Sub(now); d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			now = p.next
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.next = now.Add(p.interval)
	return nil
}
