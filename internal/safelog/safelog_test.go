package safelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/errtype"
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

// An error has its name beside it, in the words of spans, metrics and Status, unless the line has one.
func TestErrorsAreNamed(t *testing.T) {
	t.Parallel()
	err := errtype.New("out_of_stock", "none is left")
	for _, c := range []struct {
		attrs []any
		want  string
	}{
		{[]any{slog.Any("error", err)}, `"error":"none is left","error.type":"out_of_stock"}`},
		{[]any{slog.Any("error", fmt.Errorf("charge: %w", err))}, `"error":"charge: none is left","error.type":"out_of_stock"}`},
		{[]any{slog.String("error.type", "given"), slog.Any("error", err)}, `"error.type":"given","error":"none is left"}`},
		{[]any{slog.String("error", "a text")}, `"msg":"said","error":"a text"}`},
		{[]any{slog.Any("error", nil)}, `"msg":"said","error":null}`},
		{nil, `"msg":"said"}`},
	} {
		var b bytes.Buffer
		safelog.Logger(slog.New(slog.NewJSONHandler(&b, nil))).Warn("said", c.attrs...)
		if line := strings.TrimSpace(b.String()); !strings.HasSuffix(line, c.want) {
			t.Errorf("%s, want %s", line, c.want)
		}
	}
}

type stringer string

func (s stringer) String() string { return string(s) }
