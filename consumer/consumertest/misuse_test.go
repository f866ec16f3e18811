package consumertest_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/consumer/consumertest"
)

// link is a link with a place and a check.
type link struct {
	consumer.Handler
	link  consumer.Link
	check error
}

func (l link) Link() consumer.Link         { return l.link }
func (l link) Check(context.Context) error { return l.check }

func linkOf(l consumer.Link, check error) consumer.Middleware {
	return func(next consumer.Handler) consumer.Handler { return link{next, l, check} }
}

// What Run would refuse ends the test, in the runner's words.
func TestRefusals(t *testing.T) {
	t.Parallel()
	ok := &script{errs: []error{nil}}
	for name, test := range map[string]struct {
		topic consumer.Topic
		msg   *consumer.Message
		want  string
	}{
		"no handler": {consumer.Topic{}, message(), "Handler is missing"},
		"order": {consumer.Topic{Handler: ok, Middleware: []consumer.Middleware{linkOf(consumer.LinkRecover, nil),
			linkOf(consumer.LinkRetry, nil)}},
			message(), "Retry stands inside Recover"},
		"check": {consumer.Topic{Handler: ok,
			Middleware: []consumer.Middleware{linkOf(consumer.LinkRetry, errors.New("table processed_event is missing"))}},
			message(), "table processed_event is missing"},
	} {
		r := record(t, func(t testing.TB) { consumertest.Run(t, test.topic, test.msg) })
		if !r.ended || len(r.said) != 1 || !strings.Contains(r.said[0], test.want) {
			t.Errorf("%s: ended %v, said %q, want %q", name, r.ended, r.said, test.want)
		}
	}
	if len(ok.seen) > 0 {
		t.Error("the handler was called nevertheless")
	}
}

func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	r := record(t, func(t testing.TB) {
		chains := consumertest.New(t, consumer.Config{Topics: map[string]consumer.Topic{"orders": {Handler: &script{errs: []error{nil}}}}}, nil)
		chains.Deliver(context.Background(), consumertest.Message("order", "e1", nil))
	})
	if !r.ended || len(r.said) != 1 || !strings.Contains(r.said[0], `no topic "order"`) {
		t.Errorf("ended %v, said %q", r.ended, r.said)
	}
}

func TestFatalInAHandlerEndsTheTest(t *testing.T) {
	t.Parallel()
	calls := 0
	r := record(t, func(t testing.TB) {
		consumertest.Run(t, consumer.Topic{Handler: consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
			calls++
			t.Fatal("in the handler")
			return nil
		})}, message())
	})
	if !r.ended || calls != 1 || r.said[0] != "in the handler" {
		t.Errorf("ended %v after %d calls, said %q", r.ended, calls, r.said)
	}
}

// What a chain writes into the fetched batch would be seen by the next attempt.
func TestWritesToTheBatchAreFound(t *testing.T) {
	t.Parallel()
	for want, write := range map[string]func(*consumer.Message){
		"bytes of the value": func(m *consumer.Message) { m.Value[0] = 'X' },
		"bytes of the key":   func(m *consumer.Message) { m.Key[0] = 'X' },
		"headers":            func(m *consumer.Message) { m.Headers[1].Value[0] = 'X' },
		"": func(m *consumer.Message) {
			_, m.Headers[0], m.Value = append(m.Value, 'X'), consumer.Header{},
				nil
		},
	} {
		r := record(t, func(t testing.TB) {
			msg := message()
			msg.Key = []byte("key")
			msg.Value = append(make([]byte, 0, 100), "value"...)[:4]
			consumertest.Run(t, consumer.Topic{Handler: consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
				write(m)
				return nil
			})}, msg)
			if string(msg.Value[:5]) != "value" && want == "" {
				t.Error("an append reached the batch")
			}
		})
		if r.failed != (want != "") || want != "" && !strings.Contains(r.said[0], want) {
			t.Errorf("said %q, want %q", r.said, want)
		}
	}
}
