package consumer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

// OffsetRange is a part of a partition: the offsets from From up to, but without, To. What the log does not have is
// left out; To 0 means its end.
type OffsetRange struct{ From, To int64 }

// ReplayConfig says what Replay replays, and how.
type ReplayConfig struct {
	// Topic is one of Config.Topics. Required.
	Topic string

	// From and To are a window of time: in each partition, from the first message of From or later up to, but without, the
	// first one of To or later. They go by the times that the messages bear, which need not be in their order: a few of
	// other times can lie within. Zero is the start, or what was the end when Replay began.
	From, To time.Time

	// Offsets are windows of single partitions instead: those that are not named are not replayed. From and To must be
	// zero then.
	Offsets map[int32]OffsetRange

	// All must be set for a window without any bound, so that nobody replays a whole topic by leaving something out.
	All bool

	// Keep is how long records of events are kept, as in janitor.Table.Keep: older messages are not replayed, because
	// their records may be gone, so that they would take effect twice. A chain whose Dedup has a Window needs none: the
	// shorter of the two counts. One without must say it here; KeptForever if nothing deletes records. Required, unless
	// Dedup has a Window.
	Keep time.Duration

	// PerSecond is how many messages are begun in a second, over all partitions. Defaults to 100: the handlers' database
	// serves the running service too. Negative means no limit.
	PerSecond float64

	// Attempts is how often a message is attempted whose chain asks for another one by RetryAfter, as Retry does, before
	// it has failed. Defaults to 5.
	Attempts int

	// OnFailure says what happens when a message has failed. Defaults to StopReplay.
	OnFailure OnReplayFailure

	// DryRun looks the window up and reads no message: the report's Next has the offsets that a replay would read, of
	// which the log may lack some, and its counts are 0. The topic and the links are checked as ever.
	DryRun bool

	// Progress is called after each message that was dealt with, with the counts so far. It is called from several
	// goroutines, at times out of order, and holds the replay up. Optional.
	Progress func(ReplayCounts)
}

// KeptForever is the ReplayConfig.Keep of a table from which nothing is deleted.
const KeptForever time.Duration = -1

// OnReplayFailure is what Replay does with a message that has failed: one whose chain returned an error that asks for
// no other attempt, or has been attempted ReplayConfig.Attempts times. A chain with a DeadLetter writes a dead letter
// instead, as it does in Run.
type OnReplayFailure int

const (
	// StopReplay ends the replay of all partitions, with a *StopError. What was replayed stays, and Report.Next is where
	// to go on.
	StopReplay OnReplayFailure = iota
	// CountFailures logs the message's place, counts it, and goes on. It has had no effect then, and nothing else
	// remembers it.
	CountFailures
)

const (
	defaultReplayRate     = 100
	defaultReplayAttempts = 5
	// replayPartitions are read at once; each holds a fetch of 1 MiB and has one message in work.
	replayPartitions = 4
)

// ReplayCounts are numbers of messages.
type ReplayCounts struct {
	Read       int64 // in the window; the others but Skipped add up to it
	Processed  int64 // took effect now
	Duplicates int64 // had taken effect before
	Dead       int64 // were written as dead letters now
	HandedOn   int64 // failed, and were handed on now, to a retry topic for example; what had been handed on before has Failed
	Skipped    int64 // among Processed: middleware.Filter has said that they are not for this consumer
	Failed     int64
	WithoutID  int64 // not delivered: nothing would tell that they have had their effect
	TooOld     int64 // not delivered: see ReplayConfig.Keep
}

// ReplayReport is what became of a replay.
type ReplayReport struct {
	ReplayCounts

	// Next is where to go on, by ReplayConfig.Offsets, in the partitions of which something is left: all before it has
	// been dealt with. To is the end of the window.
	Next map[int32]OffsetRange
}

// Replay reads a window of a topic again, and has the chain of its Topic handle each message, as Run does: with its
// middleware, its event id, its consumer's name, so that what had its effect is a duplicate. It is for effects that
// were lost with a database's last commits, or that a repaired handler has yet to have.
//
// It joins no group and commits no offset, so it can run beside the service, in the same process or in another one, and
// be repeated. Within a partition it goes one after the other, whatever Topic.Order says. It does not wait for what Run
// does: a message that takes effect only now does so after all that have come since, for which its handler must be fit.
//
// It refuses a chain without a Dedup, in which every message would take effect again, and messages that are older than
// their records are kept. One without an event id is not delivered. The report counts them.
//
// Replay returns at the end of the window, or with an error: that of ctx, of the brokers, of the start (as Run's), of a
// message (*StopError, see OnReplayFailure). The report is never nil. Handlers get ctx: one in work when it ends is
// cancelled, and rolls back.
func Replay(ctx context.Context, cfg Config, rc ReplayConfig) (*ReplayReport, error) {
	report := &ReplayReport{Next: map[int32]OffsetRange{}}
	c, err := New(cfg)
	if err != nil {
		return report, err
	}
	r := &replay{Consumer: c, cfg: rc.withDefaults(), topic: c.topics[rc.Topic], report: report,
		log: c.cfg.Logger.With(attrTopic, rc.Topic)}
	if err := r.validate(); err != nil {
		return report, err
	}
	if err := r.run(ctx); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err() // what it cut short says less
		}
		return report, fmt.Errorf("einmal: replay: %w", err)
	}
	return report, nil
}

func (rc ReplayConfig) withDefaults() ReplayConfig {
	rc.PerSecond = cmp.Or(rc.PerSecond, defaultReplayRate)
	rc.Attempts = cmp.Or(rc.Attempts, defaultReplayAttempts)
	return rc
}

// replay is a call of Replay.
type replay struct {
	*Consumer
	cfg    ReplayConfig
	topic  *topic
	id     TopicID
	log    *slog.Logger
	keep   time.Duration // 0 for ever
	limit  *rate
	reader *topicwindow.Reader

	mu     sync.Mutex
	report *ReplayReport
}

// validate finds all that is wrong without I/O.
func (r *replay) validate() error {
	var p problems
	rc := r.cfg
	if r.topic == nil {
		p.add("ReplayConfig.Topic", "%q is not in Config.Topics: correct it, or add the topic", rc.Topic)
		return errors.Join(p...)
	}
	rc.validateWindow(&p)
	if rc.Attempts < 0 {
		p.add("ReplayConfig.Attempts", "is %d: give a positive number, or 0 for the default", rc.Attempts)
	}
	if rc.OnFailure < StopReplay || rc.OnFailure > CountFailures {
		p.add("ReplayConfig.OnFailure", "is %d: use StopReplay or CountFailures", int(rc.OnFailure))
	}
	if !r.topic.dedups() {
		p.add(fmt.Sprintf("Config.Topics[%q]", rc.Topic),
			"has no Dedup in its chain: every message would take effect again; "+
				"put middleware.Dedup around the handler, or let yours implement Linker and be a LinkDedup")
	}
	r.setKeep(&p)
	return errors.Join(p...)
}

// validateWindow checks what is to be read.
func (rc *ReplayConfig) validateWindow(p *problems) {
	timed := !rc.From.IsZero() || !rc.To.IsZero()
	switch {
	case timed && len(rc.Offsets) > 0:
		p.add("ReplayConfig.Offsets", "is set, and From or To too: use the one or the other")
	case !timed && len(rc.Offsets) == 0 && !rc.All:
		p.add("ReplayConfig", "names no window: set From, To or Offsets; or All, if the whole topic is meant")
	case !rc.From.IsZero() && !rc.To.IsZero() && !rc.From.Before(rc.To):
		p.add("ReplayConfig.From", "is not before To: nothing lies between them")
	}
	for partition, o := range rc.Offsets {
		if partition < 0 || o.From < 0 || o.To != 0 && o.To < o.From {
			p.add(fmt.Sprintf("ReplayConfig.Offsets[%d]", partition),
				"is %d to %d: give offsets in their order, of a partition that there is", o.From, o.To)
		}
	}
}

// setKeep finds out from which age on messages are left out.
func (r *replay) setKeep(p *problems) {
	window := r.topic.window()
	switch keep := r.cfg.Keep; {
	case keep < 0 && keep != KeptForever:
		p.add("ReplayConfig.Keep", "is %v: give how long records are kept, or KeptForever", keep)
	case keep == 0 && window == 0:
		p.add("ReplayConfig.Keep", "is not set, and Dedup has no Window: say how long the records of events are kept, as the janitor does (Table.Keep), "+
			"or KeptForever if nothing deletes them; an event whose record is gone would take effect twice")
	case keep > 0 && window > 0:
		r.keep = min(keep, window)
	default:
		r.keep = max(keep, window, 0)
	}
}

// dedups reports whether the chain records events.
func (t *topic) dedups() bool {
	for _, h := range t.links {
		if l, ok := h.(Linker); ok && l.Link() == LinkDedup {
			return true
		}
	}
	return false
}

// run checks what Run checks at its start, as far as it concerns the topic, and replays.
func (r *replay) run(ctx context.Context) error {
	starting, cancel := context.WithTimeout(ctx, r.Consumer.cfg.StartTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, r.dialer.End) // nothing else ends a request that is not answered
	s := r.newStarter([]string{r.cfg.Topic}, cancel)
	told := s.waits.report(starting)
	client, err := s.check(starting, s.checkTopics)
	told()
	defer func() {
		stop()
		r.dialer.End()
		closeClient(client)
	}()
	if err != nil {
		return err
	}
	if r.reader, err = topicwindow.New(client, r.cfg.Topic); err != nil {
		return err
	}
	r.id = r.reader.TopicID()
	ranges, err := r.ranges(ctx)
	if err != nil {
		return err
	}
	if r.cfg.DryRun {
		for _, rg := range ranges {
			r.advance(rg, rg.From)
		}
		return nil
	}
	r.limit = newRate(r.cfg.PerSecond)
	return r.all(ctx, ranges)
}

// ranges looks up the window in each partition.
func (r *replay) ranges(ctx context.Context) ([]topicwindow.Range, error) {
	partitions, err := r.reader.Partitions()
	if err != nil {
		return nil, err
	}
	return r.reader.Windows(ctx, partitions, r.cfg.From, r.cfg.To, r.offsets())
}

func (r *replay) offsets() map[int32]topicwindow.Range {
	if len(r.cfg.Offsets) == 0 {
		return nil
	}
	m := map[int32]topicwindow.Range{}
	for p, o := range r.cfg.Offsets {
		m[p] = topicwindow.Range{Partition: p, From: o.From, To: o.To}
	}
	return m
}

// all replays the partitions, a few at once. The first error ends them all.
func (r *replay) all(ctx context.Context, ranges []topicwindow.Range) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	places := make(chan struct{}, replayPartitions)
	var running sync.WaitGroup
	for _, rg := range ranges {
		r.advance(rg, rg.From)
	}
	for _, rg := range ranges {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if err := r.partition(ctx, rg); err != nil {
				stop(err) // the first cause stays
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// advance notes where to go on. A partition that is done is left out: a To of 0 would mean its end.
func (r *replay) advance(rg topicwindow.Range, next int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next >= rg.To {
		delete(r.report.Next, rg.Partition)
		return
	}
	r.report.Next[rg.Partition] = OffsetRange{next, rg.To}
}

// partition replays one.
func (r *replay) partition(ctx context.Context, rg topicwindow.Range) error {
	r.topic.assigned(rg.Partition)
	at, err := r.reader.Read(ctx, rg, func(rec *sarama.ConsumerMessage) error {
		if err := r.limit.wait(ctx); err != nil {
			return err
		}
		return r.message(ctx, rec)
	})
	r.advance(rg, at)
	return err
}
