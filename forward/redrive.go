package forward

import (
	"context"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/nils"
)

// Store is a dedup store as Redrive needs it: pgxstore, sqlstore and bunstore have it.
type Store[Tx any] interface {
	dedupstore.Transactor[Tx]
	dedupstore.Forgetter[Tx]
}

// RedriveConfig is what can be chosen about Redrive. Nil means all defaults: all dead letters, ten a second.
type RedriveConfig struct {
	// RedriveConfig is what can be chosen about any redrive: which dead letters, how fast, how many. Filter.Consumer may
	// be empty. A dry run does all that is to be done, and rolls it back: it finds what could not be published, and notes
	// nothing.
	deadletter.RedriveConfig

	// EventID is the Topic.EventID of the consumers whose dead letters these are. Defaults to
	// consumer.HeaderID("event-id").
	EventID func(*consumer.Message) (string, error)
}

// ErrNotPublishable is wrapped by the error for a dead letter that its consumer would not know as the event that died.
// The dead letter stays.
var ErrNotPublishable = errors.New("it cannot be published again")

// Redrive has dead letters published again, the oldest first, but those of a partition in the order in which they stood
// there, in the topic in which their messages stood: with their key, value, headers and id, as new messages at the end
// of that partition (if the topic still has it). For each of them one transaction takes the dead letter out of its
// table, deletes the event's record (and those of its hand-ons, see RetryTopics), and writes the event to the outbox;
// so it can be interrupted anywhere and run again, several may run at once, and the event takes effect once, by its
// consumer, when the relay has sent it. Others that read the topic get a copy of what they have handled already: they
// must know events by their ids, as Dedup does. Until the consumer has come to it, an original that is delivered again
// is handled in its stead, and the copy is a duplicate then.
//
// deadletter.Redrive is the other way, in which the handler runs at once and in the transaction: it is for all dead
// letters. This one needs no handler, and so no process of the service, but the message must carry its id:
//
//   - its id was read from the message's headers, key or value: EventID must say how. What EventID reads from the message as it
//     would be published must be the id under which the event died;
//   - it had no id (KindNoEventID): the header event-id gets the place where it stood, unless EventID finds an id by now, because
//     somebody has edited the row. A consumer whose ids are elsewhere gives it up again;
//   - its id is the place where it stood (consumer.OffsetID), or its dead letter was keyed by that (KindTxEnded), or its bytes were
//     left out: refused, with an error that wraps ErrNotPublishable or deadletter.ErrLeftOut.
//
// One that cannot be published, because of that or because the outbox does not take it (it wraps outbox.ErrInvalidEvent
// then), counts as failed: its row stays and says why, and so do those of its key that come after it, which would
// overtake it (DeadLetterConfig.WithoutMessage keeps no key, and so such a dead letter holds up none). Kinds whose
// effect may be there are held, as by deadletter.Redrive. A dead letter of KindCrashLoop is given up again as long as
// its row in started_message is there: delete that first.
//
// store, source and events must work on one database.
func Redrive[Tx any](ctx context.Context, store Store[Tx], source deadletter.Source[Tx], events Events[Tx],
	cfg *RedriveConfig) (deadletter.Report, error) {
	if cfg == nil {
		cfg = &RedriveConfig{}
	}
	if err := errors.Join(
		missing(nils.Is(store), "the store is nil: pass pgxstore.New(pool, nil), for example"),
		missing(nils.Is(source), "the table is nil: pass pgxdeadletter.New(pool, nil), for example"),
		missing(nils.Is(events), "the writer of events is nil: pass pgxoutbox.NewWriter(nil), for example"),
	); err != nil {
		return deadletter.Report{}, err
	}
	r := &republisher[Tx]{Source: source, store: store, events: events, eventID: cfg.EventID, failed: map[string]bool{}}
	if r.eventID == nil {
		r.eventID = consumer.HeaderID(consumer.DefaultEventIDHeader)
	}
	all := cfg.RedriveConfig
	all.AnyConsumer = true
	if cfg.DryRun {
		return dryRun(ctx, store, r, all)
	}
	return deadletter.Redrive(ctx, store, r, r.publish, &all)
}

func missing(is bool, what string) error {
	if !is {
		return nil
	}
	return errors.New("forward.Redrive: " + what)
}

// republisher is a table whose dead letters are published when they are taken. One redrive uses it, for one dead letter
// after the other.
type republisher[Tx any] struct {
	deadletter.Source[Tx]
	store   dedupstore.Forgetter[Tx]
	events  Events[Tx]
	eventID func(*consumer.Message) (string, error)

	taken  *deadletter.Record // the last one
	failed map[string]bool    // keys of those that could not be published
	dry    bool
}

// Take implements deadletter.Taker.
func (r *republisher[Tx]) Take(ctx context.Context, tx Tx, id int64) (rec *deadletter.Record, err error) {
	rec, err = r.Source.Take(ctx, tx, id)
	r.taken = rec
	if err == nil && rec.LeftOut {
		r.failed[orderOf(rec.Topic, rec.Partition, rec.Key)] = true
	}
	return rec, err
}

// Failed implements deadletter.Keeper.
func (r *republisher[Tx]) Failed(ctx context.Context, id int64, text string) error {
	if r.dry {
		return nil
	}
	return r.Source.Failed(ctx, id, text)
}

// errBehind is why a dead letter is not published whose predecessor was not.
var errBehind = errors.New("another dead letter of its key, which comes before it, could not be published: have that published first, or discard it, or name this one by its id alone")

// publish is a consumer.TxHandler.
func (r *republisher[Tx]) publish(ctx context.Context, tx Tx, msg *consumer.Message) error {
	key := orderOf(msg.Topic, msg.Partition, msg.Key)
	if msg.Key != nil && r.failed[key] {
		return errBehind
	}
	err := r.publishOne(ctx, tx, msg)
	if err != nil {
		r.failed[key] = true
	}
	return err
}

// orderOf names what has an order: a key in a partition.
func orderOf(topic string, partition int32, key []byte) string {
	return fmt.Sprintf("%q %d %q", topic, partition, key)
}

func (r *republisher[Tx]) publishOne(ctx context.Context, tx Tx, msg *consumer.Message) error {
	e := eventOf(msg, msg.Topic, func(string) bool { return false })
	e.Partition = &msg.Partition // where others of its key are, whoever has chosen it
	if r.taken.Kind == deadletter.KindNoEventID {
		e.ID = deadletter.RedrivenID(e.ID) // consumers refuse a place as an id
	}
	if err := r.known(r.taken, asConsumed(e)); err != nil {
		return err
	}
	if err := r.store.Forget(ctx, tx, r.taken.DedupKey()); err != nil {
		return err
	}
	return write(ctx, r.events, tx, e)
}

// known reports why the consumer would not know the event by the id under which it died.
func (r *republisher[Tx]) known(rec *deadletter.Record, again *consumer.Message) error {
	again.Partition, again.Offset = -1, -1 // where it will stand is not known
	id, err := r.eventID(again)
	if own, ok := again.Header(RetryEventHeader); ok && fromStage(again) && (err != nil || id != rec.Event) {
		id, err = string(own), nil
	}
	switch {
	case rec.Kind == deadletter.KindNoEventID && err == nil:
		return nil
	case rec.AtPlace():
		err = errors.New("its id is its place in the topic, and it would get another one")
	case err != nil: // which says where the id is missing
	case id != rec.Event:
		err = errors.New("the id that EventID reads from the message is not the one under which it died")
	default:
		return nil
	}
	return fmt.Errorf("%w: %w: set EventID to the consumer's, or handle it in the service's process by deadletter.Redrive",
		ErrNotPublishable, err)
}

// fromStage reports whether the message stood in a retry topic: the header has no meaning elsewhere.
func fromStage(msg *consumer.Message) bool {
	origin, ok := msg.Header(RetryTopicHeader)
	return ok && string(origin) != msg.Topic
}

// errDry rolls a dry run back.
var errDry = errors.New("this is a dry run")

// dryStore rolls all its transactions back.
type dryStore[Tx any] struct{ dedupstore.Transactor[Tx] }

// InTx implements dedupstore.Transactor.
func (s dryStore[Tx]) InTx(ctx context.Context, fn func(ctx context.Context, tx Tx) error) error {
	return s.Transactor.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := fn(ctx, tx); err != nil {
			return err
		}
		return errDry
	})
}

// dryRun is a redrive each of whose successes is a failure with errDry.
func dryRun[Tx any](ctx context.Context, store dedupstore.Transactor[Tx], r *republisher[Tx],
	cfg deadletter.RedriveConfig) (deadletter.Report, error) {
	would, failed, each := 0, 0, cfg.Each
	cfg.Each = func(rec *deadletter.Record, err error) {
		switch {
		case errors.Is(err, errDry):
			would++
			err = nil
		case !errors.Is(err, deadletter.ErrTaken):
			failed++
		}
		if each != nil {
			each(rec, err)
		}
	}
	r.dry, cfg.DryRun, cfg.PerSecond, cfg.Failures = true, false, -1, 0
	report, err := deadletter.Redrive(ctx, dryStore[Tx]{store}, r, r.publish, &cfg)
	report.Redriven, report.Failed = would, failed
	return report, err
}
