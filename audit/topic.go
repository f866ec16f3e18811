package audit

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/internal/topicwindow"
)

// readAtOnce is how many partitions are read side by side. Each holds a fetch of 1 MiB.
const readAtOnce = 3

// log is the topic.
type log struct {
	reader  *topicwindow.Reader
	numbers []int32 // of the partitions
	parts   []*Part // of them that are read
}

func openLog(cluster *topicwindow.Cluster, topic string) (*log, error) {
	reader, err := cluster.Topic(topic)
	if err != nil {
		return nil, err
	}
	numbers, err := reader.Partitions()
	return &log{reader: reader, numbers: numbers}, err
}

// choose looks up what is to be read.
func (l *log) choose(ctx context.Context, from, to time.Time, offsets map[int32]topicwindow.Range) error {
	ranges, err := l.reader.Windows(ctx, l.numbers, from, to, offsets)
	if err != nil {
		return err
	}
	for _, rg := range ranges {
		whole, err := l.reader.Log(ctx, rg.Partition)
		if err != nil {
			return err
		}
		l.parts = append(l.parts, &Part{Partition: rg.Partition, From: rg.From, To: rg.To, End: whole.To})
	}
	return nil
}

// window reads the messages of the window.
func (l *log) window(ctx context.Context, g *gatherer, unreadable func(topicwindow.Range, error),
	each func(*topicwindow.Record) error) error {
	var total int64
	for _, p := range l.parts {
		total += p.To - p.From
	}
	g.step("messages", total)
	return l.each(ctx, func(ctx context.Context, p *Part) error {
		rg := topicwindow.Range{Partition: p.Partition, From: p.From, To: p.To}
		at, err := l.read(ctx, rg, unreadable, func(rec *topicwindow.Record) error {
			p.Messages++
			return each(rec)
		})
		p.To, p.Unread = at, rg.To-at
		return err
	})
}

// tail reads what has come behind the window and is not committed: what stands there comes again.
func (l *log) tail(ctx context.Context, committed map[int32]int64, each func(*topicwindow.Record) error) error {
	return l.each(ctx, func(ctx context.Context, p *Part) error {
		whole, err := l.reader.Log(ctx, p.Partition)
		if err != nil {
			return err
		}
		rg := topicwindow.Range{Partition: p.Partition, From: max(p.To+p.Unread, committed[p.Partition], whole.From),
			To: whole.To}
		if rg.From >= rg.To {
			return nil
		}
		_, err = l.read(ctx, rg, func(topicwindow.Range, error) {}, each)
		return err
	})
}

// ends are those of the partitions.
func (l *log) ends(ctx context.Context) (map[int32]int64, error) {
	ends := map[int32]int64{}
	for _, n := range l.numbers {
		whole, err := l.reader.Log(ctx, n)
		if err != nil {
			return nil, err
		}
		ends[n] = whole.To
	}
	return ends, nil
}

var errFirst = errors.New("this is the first one")

// begins is the time of the first message that is left in a partition, in milliseconds since 1970: 0 if none was
// deleted before it, the present if none is left.
func (l *log) begins(ctx context.Context, partition int32) (millis int64, err error) {
	whole, err := l.reader.Log(ctx, partition)
	if err != nil || whole.From == 0 {
		return 0, err
	}
	millis = time.Now().UnixMilli()
	_, err = l.read(ctx, whole, func(topicwindow.Range, error) {}, func(rec *topicwindow.Record) error {
		if at := rec.Timestamp.UnixMilli(); at > 0 {
			millis = at
		}
		return errFirst
	})
	if errors.Is(err, errFirst) {
		err = nil
	}
	return millis, err
}

// each calls f for the partitions, a few at once. The first error ends all.
func (l *log) each(ctx context.Context, f func(ctx context.Context, p *Part) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	places := make(chan struct{}, readAtOnce)
	var running sync.WaitGroup
	for _, p := range l.parts {
		running.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			if err := f(ctx, p); err != nil {
				stop(err) // the first cause stays
			}
		})
	}
	running.Wait()
	return context.Cause(ctx)
}

// read reads a range. What cannot be decoded ends it, and is told. What the retention has deleted meanwhile is passed
// over.
func (l *log) read(ctx context.Context, rg topicwindow.Range, unreadable func(topicwindow.Range, error),
	each func(*topicwindow.Record) error) (int64, error) {
	for {
		var failed error // in each, which is not to be taken for one of the topic
		at, err := l.reader.Read(ctx, rg, func(rec *topicwindow.Record) error {
			failed = each(rec)
			return failed
		})
		rg.From = at
		switch {
		case err == nil, failed != nil, ctx.Err() != nil:
			return at, err
		case topicwindow.OutOfRange(err):
			whole, err := l.reader.Log(ctx, rg.Partition)
			if err != nil {
				return at, err
			}
			if whole.From <= at || whole.From >= rg.To {
				return max(at, min(whole.From, rg.To)), nil
			}
			rg.From = whole.From
		case topicwindow.Undecodable(errors.Unwrap(err)):
			unreadable(rg, errors.Unwrap(err))
			return at, nil
		default:
			return at, err
		}
	}
}

// messageFact is what the window has to say of an id.
func (a *audit) messageFact(rec *topicwindow.Record) fact {
	msg := a.message(rec)
	f := fact{kind: factMessage, partition: rec.Partition, offset: rec.Offset, millis: rec.Timestamp.UnixMilli(),
		value: valueHash(rec)}
	if rec.Timestamp.IsZero() || f.millis < 0 {
		f.millis, f.flags = 0, flagUntimed
	}
	id, err := a.cfg.EventID(msg)
	if err != nil || !a.tables.takes(id) {
		id = a.place(msg)
		f.flags |= flagNoID
	}
	f.id = a.tables.canonical(id)
	if a.cfg.Foreign != nil && a.cfg.Foreign(msg) {
		f.flags |= flagForeign
	}
	return f
}

// place is the id of a dead letter of a message without one.
func (a *audit) place(msg *consumer.Message) string {
	if id, ok := deadletter.PlaceUUID(msg); ok && a.tables.uuid {
		return id
	}
	return deadletter.Place(msg)
}

func (a *audit) message(rec *topicwindow.Record) *consumer.Message {
	m := messageOf(rec)
	m.TopicID, m.Group, m.Consumer = a.log.reader.TopicID(), a.cfg.Group, a.cfg.Consumer
	return m
}

func messageOf(rec *topicwindow.Record) *consumer.Message {
	m := &consumer.Message{
		Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset, Key: rec.Key, Value: rec.Value,
		Timestamp: rec.Timestamp,
	}
	for _, h := range rec.Headers {
		m.Headers = append(m.Headers, consumer.Header{Key: string(h.Key), Value: h.Value})
	}
	return m
}

// values reads the messages of the examples again.
func (l *log) values(ctx context.Context, all Found) error {
	for _, found := range all {
		for _, e := range found.Examples {
			for i := range e.Places {
				p := &e.Places[i]
				rg := topicwindow.Range{Partition: p.Partition, From: p.Offset, To: p.Offset + 1}
				_, err := l.read(ctx, rg, func(topicwindow.Range, error) {}, func(rec *topicwindow.Record) error {
					p.Key, p.Value = rec.Key, rec.Value
					return nil
				})
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}
