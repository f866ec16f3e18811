package consumer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// line is what brokerErrors writes.
type line struct {
	Level    string
	Error    string
	Repeated int
}

// logged returns what a logger wrote through the buffer, and empties it.
func logged(t *testing.T, b *bytes.Buffer) []line {
	t.Helper()
	var lines []line
	for dec := json.NewDecoder(b); dec.More(); {
		var l line
		if err := dec.Decode(&l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
	}
	return lines
}

func newLogged() (*brokerErrors, *bytes.Buffer) {
	var b bytes.Buffer
	return newBrokerErrors(slog.New(slog.NewJSONHandler(&b, nil))), &b
}

func TestBrokerErrorsAreCountedNotRepeated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		errs, b := newLogged()
		errs.every = 10 * time.Second
		refused, reset := errors.New("connection refused"), errors.New("connection reset")
		for range 100 { // 9.9 s
			errs.warn(refused)
			time.Sleep(99 * time.Millisecond)
		}
		errs.warn(reset)
		lines := logged(t, b)
		if len(lines) != 2 || lines[0] != (line{"WARN", "connection refused", 0}) ||
			lines[1] != (line{"WARN", "connection reset", 0}) {
			t.Errorf("in the first 10 s: %v", lines)
		}
		time.Sleep(100 * time.Millisecond)
		errs.warn(refused)
		errs.warn(refused)
		if lines := logged(t, b); len(lines) != 1 || lines[0] != (line{"WARN", "connection refused", 99}) {
			t.Errorf("after 10 s: %v, want one line that counts 99", lines)
		}
		time.Sleep(10 * time.Second)
		errs.warn(reset)
		errs.warn(refused)
		if lines := logged(t, b); len(lines) != 2 || lines[0].Repeated != 0 || lines[1].Repeated != 1 {
			t.Errorf("after 20 s: %v, want reset and refused, the latter repeated once", lines)
		}
	})
}

// Texts that never come again do not stay for ever.
func TestBrokerErrorsForget(t *testing.T) {
	t.Parallel()
	errs, b := newLogged()
	for i := range 10 * maxTexts {
		errs.warn(fmt.Errorf("error %d", i))
		if len(errs.last) > maxTexts {
			t.Fatalf("%d texts are remembered", len(errs.last))
		}
	}
	if lines := logged(t, b); len(lines) != 10*maxTexts {
		t.Errorf("%d lines for %d texts", len(lines), 10*maxTexts)
	}
}

// A text that is known takes nothing from the others.
func TestBrokerErrorsRemember(t *testing.T) {
	t.Parallel()
	errs, b := newLogged()
	errs.every = 0
	for i := range maxTexts {
		errs.warn(fmt.Errorf("error %d", i))
	}
	errs.warn(errors.New("error 0"))
	if len(errs.last) != maxTexts {
		t.Errorf("%d texts are remembered, want %d", len(errs.last), maxTexts)
	}
	if lines := logged(t, b); len(lines) != maxTexts+1 {
		t.Errorf("%d lines", len(lines))
	}
}

func TestBrokerErrorsFromManyGoroutines(t *testing.T) {
	t.Parallel()
	errs, b := newLogged()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				errs.warn(fmt.Errorf("error %d", i%2))
			}
		})
	}
	wg.Wait()
	if lines := logged(t, b); len(lines) != 2 {
		t.Errorf("%d lines for two texts: %v", len(lines), lines)
	}
	if errs.last["error 0"].more != 399 || errs.last["error 1"].more != 399 {
		t.Errorf("counted %d and %d, want 399", errs.last["error 0"].more, errs.last["error 1"].more)
	}
}
