package consumer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// safeBuffer is a log in memory.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A handler's error that repeats the message does not bring it into the log, nor into what Run returns.
func TestErrorsThatRepeatTheMessage(t *testing.T) {
	t.Parallel()
	for name, own := range map[string]func(error, *consumer.Message) string{
		"by default":         nil,
		"by Config":          func(error, *consumer.Message) string { return "not told" },
		"by one that panics": func(error, *consumer.Message) string { panic("s3cret") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t)
			topic, group := b.Topic(t, 1), serverstest.Group(t)
			b.Produce(t, records(topic, 1, 1)...)
			var log safeBuffer
			cfg := config(b, group, topic, consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
				msg.Value = []byte(strings.Repeat("s3cret-payload ", 60_000))
				return fmt.Errorf("cannot charge %s: password=s3cret", msg.Value)
			}))
			cfg.Logger, cfg.ErrorText = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), own
			tp := cfg.Topics[topic]
			tp.OnFailure = consumer.Stop
			cfg.Topics[topic] = tp
			err := consumer.Run(t.Context(), cfg)
			var stopped *consumer.StopError
			if !errors.As(err, &stopped) || !strings.Contains(stopped.Err.Error(), "s3cret") {
				t.Fatal("Run has not stopped by the message")
			}
			for where, text := range map[string]string{"Run's error": err.Error(), "the log": log.String()} {
				if strings.Contains(text, "s3cret") || len(text) > 20_000 {
					t.Errorf("%s has %d bytes: %.500s", where, len(text), text)
				}
			}
			if !strings.Contains(log.String(), "OnFailure is Stop") || own == nil &&
				!strings.Contains(err.Error(), "cannot charge ***") {
				t.Errorf("%v\n%s", err, log.String())
			}
		})
	}
}
