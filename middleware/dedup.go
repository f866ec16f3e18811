package middleware

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/nils"
)

// DedupConfig is what can be chosen about Dedup. Nil means all defaults.
type DedupConfig struct {
	// Window is how long the store keeps its records, if it does not keep them for ever: an event whose Timestamp is older
	// when it is handled, and whose record is not there, is refused with a permanent error that wraps ErrTooOld, because
	// its record may have been deleted and it would take effect again. What is refused is not skipped: it is a failure
	// like others, for OnFailure or a dead letter. Let janitor.Table.Keep be the same constant, and make it at least as
	// long as the topic keeps messages: Run compares them at its start. docs/retention.md has the arithmetic.
	//
	// A message without a Timestamp is never too old. Defaults to 0: no limit, because records are kept for ever unless
	// somebody deletes them.
	Window time.Duration
}

// ErrTooOld is wrapped by the permanent error for an event that is older than DedupConfig.Window, or than the records
// that the store keeps. It is dedupstore's.
var ErrTooOld = dedupstore.ErrTooOld

// Dedup returns the handler at the heart of a chain: it runs h in a transaction of store that also records the event,
// so that what h writes through its transaction takes effect once. It returns nil when the effect is committed, now or
// by an earlier delivery: then h is not called and msg.Result.Duplicate is set. The key is msg.Consumer with
// msg.EventID; dedupstore.KeyFrom returns it inside h.
//
// Each call is one attempt, with a transaction of its own. Errors of h and of the store come back as they are, for
// Retry, except those that no attempt can cure, which are permanent:
//
//   - a message without an id (msg.EventIDErr says why), or with one that dedupstore.Key or the store refuses;
//   - an event outside DedupConfig.Window, or for which the store keeps no records any more (ErrTooOld);
//   - a transaction that h committed or rolled back itself (dedupstore.ErrTxEnded). It is a defect of h that the next attempt
//     repeats; and if h committed, the record is committed with it, so that the next attempt would find a duplicate and
//     report success although h may have failed in between.
//
// Dedup of a nil store or a nil h, or with a negative Window, cannot handle anything: consumer.New says so, as does
// every call of Handle. Check, which Run calls at its start, asks a store that is a dedupstore.Checker.
func Dedup[Tx any](store dedupstore.Store[Tx], h consumer.TxHandler[Tx], cfg *DedupConfig) consumer.Handler {
	if cfg == nil {
		cfg = &DedupConfig{}
	}
	d := &dedup[Tx]{store: store, h: h, window: cfg.Window}
	d.invalid = d.validate()
	return d
}

type dedup[Tx any] struct {
	store   dedupstore.Store[Tx]
	h       consumer.TxHandler[Tx]
	window  time.Duration
	invalid error // what is wrong with the configuration
	declared
}

func (d *dedup[Tx]) validate() error {
	var errs []error
	if nils.Is(d.store) {
		errs = append(errs, errors.New("middleware.Dedup: the store is nil: pass one, pgxstore.New(pool, nil) for example"))
	}
	if d.h == nil {
		errs = append(errs, errors.New("middleware.Dedup: the handler is nil: pass a function; "+
			"consumer.JSONTx and DecodeTx are nil if their function is"))
	}
	if d.window < 0 {
		errs = append(errs, fmt.Errorf("middleware.Dedup: DedupConfig.Window is %v: "+
			"make it 0 (no limit) or as long as the table's retention", d.window))
	}
	return errors.Join(errs...)
}

// Link implements consumer.Linker.
func (d *dedup[Tx]) Link() consumer.Link { return consumer.LinkDedup }

// Window implements consumer.Windower.
func (d *dedup[Tx]) Window() time.Duration { return d.window }

// Group implements consumer.Grouper.
func (d *dedup[Tx]) Group() int {
	if g, ok := d.store.(dedupstore.Grouper); ok {
		return g.Group()
	}
	return 0
}

// GroupStats implements consumer.GroupReporter.
func (d *dedup[Tx]) GroupStats() (stats consumer.GroupStats, ok bool) {
	if r, reports := d.store.(dedupstore.GroupReporter); reports {
		of, ok := r.GroupStats()
		return consumer.GroupStats(of), ok
	}
	return stats, false
}

// StoreType tells the consumer's first line in the log what it records in.
func (d *dedup[Tx]) StoreType() string { return fmt.Sprintf("%T", d.store) }

// StoreIdleTimeout tells the consumer's start how long a transaction may be left alone.
func (d *dedup[Tx]) StoreIdleTimeout() time.Duration {
	if s, ok := d.store.(interface{ IdleTimeout() time.Duration }); ok {
		return s.IdleTimeout()
	}
	return 0
}

// recordsIn implements recorder.
func (d *dedup[Tx]) recordsIn() any { return d.store }

// Validate implements consumer.Validator.
func (d *dedup[Tx]) Validate(outside []consumer.Handler) error {
	d.declare()
	tellOutside(outside, d)
	return d.invalid
}

// Check implements consumer.Checker.
func (d *dedup[Tx]) Check(ctx context.Context) error {
	if d.invalid != nil {
		return d.invalid
	}
	return checkIfAble(ctx, d.store)
}

// checkAgain is the pause between two checks of a database that does not answer.
const checkAgain = 500 * time.Millisecond

// Handle implements consumer.Handler.
func (d *dedup[Tx]) Handle(ctx context.Context, msg *consumer.Message) error {
	if d.invalid != nil {
		return d.invalid // not permanent: nothing is wrong with the message
	}
	d.reached(ctx, msg, consumer.LinkDedup)
	if err := d.refuse(msg); err != nil {
		return consumer.Permanent(err)
	}
	ran, err := d.once(ctx, msg)
	if err != nil {
		return classify(msg, err)
	}
	if !ran {
		// A store may have begun with h and rolled back before it found the record of another process.
		msg.Result.Duplicate = true
		notBegun(&msg.Result)
	}
	return nil
}

// refuse says what keeps msg from being recorded.
func (d *dedup[Tx]) refuse(msg *consumer.Message) error {
	switch {
	case msg.EventIDErr != nil:
		return msg.EventIDErr
	case msg.EventID == "":
		return fmt.Errorf("%w: it is empty: let Topic.EventID return an id or an error", consumer.ErrNoEventID)
	case deadletter.Reserved(msg.EventID):
		return fmt.Errorf("%w: it is of the form that dead letters of messages without an id have (see deadletter.Reserved): let the producer use another one", dedupstore.ErrInvalidKey)
	}
	return nil
}

// tooOld says that the event's record may have been deleted.
func (d *dedup[Tx]) tooOld(msg *consumer.Message) error {
	if d.window == 0 || msg.Timestamp.IsZero() {
		return nil
	}
	if age := time.Since(msg.Timestamp); age > d.window {
		return fmt.Errorf("%w: its age is %v, DedupConfig.Window %v: "+
			"handle it by hand, or widen the window together with the table's retention", ErrTooOld, age.Round(time.Second),
			d.window)
	}
	return nil
}

// once runs the handler, unless the event is recorded. An event that is too old is looked for all the same: if it is
// recorded, it is a duplicate like others.
func (d *dedup[Tx]) once(ctx context.Context, msg *consumer.Message) (ran bool, err error) {
	key := dedupstore.Key{Consumer: msg.Consumer, Event: msg.EventID}
	time := clockOf(ctx)
	time.wait()
	defer time.run()
	old := d.tooOld(msg)
	ran, err = timedOnce(ctx, d.store, msg, key, func(ctx context.Context, tx Tx) error {
		if old != nil {
			return consumer.Permanent(old)
		}
		time.run()
		defer time.wait()
		return consumer.SafeError(d.h(ctx, tx, msg))
	})
	if old != nil {
		notBegun(&msg.Result)
	}
	return ran, err
}

// notBegun takes back that the handler has begun.
func notBegun(res *consumer.Result) { res.HandlerStart, res.HandlerEnd = time.Time{}, time.Time{} }

// timedOnce calls the store, and notes in msg.Result the times of the steps and how the transaction ended.
func timedOnce[Tx any](ctx context.Context, store dedupstore.Store[Tx], msg *consumer.Message, key dedupstore.Key,
	fn func(ctx context.Context, tx Tx) error) (ran bool, err error) {
	res := &msg.Result
	res.Begin, res.HandlerStart, res.HandlerEnd = time.Now(), time.Time{}, time.Time{}
	err = errPanicked
	defer func() { // after a panic too
		res.End = time.Now()
		countTransaction(res, err)
	}()
	return store.Once(dedupstore.WithKey(ctx, key), key, func(ctx context.Context, tx Tx) error {
		defer func() { res.HandlerEnd = time.Now() }()
		res.HandlerStart = time.Now()
		return fn(ctx, tx)
	})
}

// errPanicked stands for the error of a call that a panic, or runtime.Goexit, has left.
var errPanicked = errors.New("panicked")

// countTransaction notes how the transaction ended.
func countTransaction(res *consumer.Result, err error) {
	t := &res.Transactions
	switch {
	case err == nil:
		t.Committed++
	case errors.Is(err, dedupstore.ErrOutcomeUnknown):
		t.Unknown++
	default:
		t.RolledBack++
	}
}

// classify gives errors of the store what follows on them. What kept the function from beginning is not the event's
// fault, unless the store refused its key.
func classify(msg *consumer.Message, err error) error {
	waited, class := msg.Result.HandlerStart.IsZero(), dedupstore.ClassOf(err)
	switch {
	case waited && class == dedupstore.Permanent, errors.Is(err, dedupstore.ErrTxEnded):
		return consumer.Permanent(err)
	case waited && class == dedupstore.Unclassified:
		return dedupstore.WithClass(dedupstore.Unavailable, err)
	}
	return err
}
