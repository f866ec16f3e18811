package topicwindow

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// produced is a topic of one partition with n records.
func produced(t *testing.T, b *serverstest.Broker, n int) (topic string) {
	t.Helper()
	topic = b.Topic(t, 1)
	for i := range n {
		b.Produce(t, &sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(i))})
	}
	return topic
}

func reader(ctx context.Context, t *testing.T, b *serverstest.Broker, topic string) *Reader {
	t.Helper()
	c, err := Dial(ctx, b.Addrs, Security{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r, err := c.Topic(topic)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// read reads a range and returns its offsets.
func read(t *testing.T, r *Reader, rg Range) (offsets string, at int64, err error) {
	t.Helper()
	var all []string
	at, err = r.Read(t.Context(), rg, func(rec *Record) error {
		all = append(all, fmt.Sprint(rec.Offset))
		return nil
	})
	return strings.Join(all, " "), at, err
}

// failFetches answers the first n fetches with an error.
func failFetches(b *serverstest.Broker, n int64, code int16) {
	var left atomic.Int64
	left.Store(n)
	b.Fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		if left.Add(-1) < 0 {
			return nil, nil, false //nolint:nilnil // not handled
		}
		fetch := req.(*kmsg.FetchRequest)
		res := req.ResponseKind().(*kmsg.FetchResponse)
		for _, t := range fetch.Topics {
			topic := kmsg.NewFetchResponseTopic()
			topic.Topic, topic.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				partition := kmsg.NewFetchResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, code
				topic.Partitions = append(topic.Partitions, partition)
			}
			res.Topics = append(res.Topics, topic)
		}
		return res, nil, true
	})
}

// What passes is tried again: nothing is skipped, nothing read twice.
func TestReadOutlastsErrors(t *testing.T) {
	t.Parallel()
	for _, e := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.FencedLeaderEpoch, kerr.ReplicaNotAvailable} {
		t.Run(e.Message, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t, kfake.NumBrokers(2))
			topic := produced(t, b, 5)
			failFetches(b, 3, e.Code)
			if offsets, at, err := read(t, reader(t.Context(), t, b, topic), Range{0, 1, 4}); err != nil || offsets != "1 2 3" ||
				at != 4 {
				t.Errorf("%q, %d, %v", offsets, at, err)
			}
		})
	}
}

// What was deleted meanwhile is an error at once, and says where.
func TestReadOfWhatIsGone(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := produced(t, b, 2)
	offsets, at, err := read(t, reader(t.Context(), t, b, topic), Range{0, 50, 60})
	if !errors.Is(err, sarama.ErrOffsetOutOfRange) || !strings.Contains(err.Error(), topic+"[0] at 50") || offsets != "" ||
		at != 50 {
		t.Errorf("%q, %d, %v", offsets, at, err)
	}
}

// An error of the function ends the reading, and is returned as it is, with where to go on.
func TestReadStopsWhereTheFunctionFails(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic, stop := produced(t, b, 5), errors.New("stop")
	at, err := reader(t.Context(), t, b, topic).Read(t.Context(), Range{0, 0, 5}, func(rec *Record) error {
		if rec.Offset == 3 {
			return stop
		}
		return nil
	})
	if err != stop || at != 3 { //nolint:errorlint // as it is
		t.Errorf("%d, %v", at, err)
	}
}

// A broker that does not answer holds nobody longer than the context lasts.
func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	topic := produced(t, b, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := reader(ctx, t, b, topic)
	asked, release := make(chan struct{}, 100), make(chan struct{})
	defer close(release)
	b.Fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		asked <- struct{}{}
		b.Fake.SleepControl(func() { <-release })
		return nil, nil, false //nolint:nilnil // not handled
	})
	done := make(chan error)
	go func() {
		_, err := r.Read(ctx, Range{0, 0, 1}, func(*Record) error { return nil })
		done <- err
	}()
	<-asked
	cancel()
	select {
	case err := <-done:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("it returned %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
}
