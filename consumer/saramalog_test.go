package consumer

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// What the client library says arrives as one line each, at level Debug. Its logger is one for the process: setting it
// here would race with the clients of other tests.
func TestSaramaLogger(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := saramaLogger{slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	l.Print("a ", 1)
	l.Printf("b %d\n", 2)
	l.Println("c", 3)
	for _, want := range []string{`level=DEBUG msg="sarama: a 1"`, `msg="sarama: b 2"`, `msg="sarama: c 3"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in %s", want, log.String())
		}
	}
}
