package safelog_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/safelog"
)

// Whatever way an attribute takes into a line, it brings no secret and no long text along.
func TestLinesHaveNoSecrets(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	log := safelog.Logger(slog.New(slog.NewJSONHandler(&b, nil)))
	err := errors.New("postgres://app:hunter2@db: access_token=hunter2 " + strings.Repeat("x", 900_000))
	log.With("a", err).WithGroup("g").Warn("said", slog.Any("error", err), slog.String("text", err.Error()),
		slog.Group("h", slog.Any("error", err)),
		slog.Any("texts", []string{err.Error()}), slog.Any("bytes", []byte(err.Error())),
		slog.Any("stringer", stringer(err.Error())))
	if line := b.String(); strings.Contains(line, "hunter2") || len(line) > 96<<10 ||
		strings.Count(line, "access_token=***") != 7 {
		t.Errorf("%d bytes: %.300s", len(line), line)
	}
}

type stringer string

func (s stringer) String() string { return string(s) }
