package status_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/status"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// part is the value of a section that knows whether it is well.
type part struct {
	N       int `json:"n"`
	problem string
}

func (p part) Problem() string { return p.problem }

// get asks a handler and returns what it answered.
func get(t *testing.T, h http.Handler) (*status.Report, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/status", nil))
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	var r status.Report
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	return &r, w.Body.String()
}

func TestSections(t *testing.T) {
	t.Parallel()
	before := time.Now()
	r, _ := get(t, status.Handler(status.Sections{
		"consumer": func(context.Context) (any, error) { return part{N: 1}, nil },
		"own":      func(context.Context) (any, error) { return map[string]int{"x": 2}, nil },
	}, nil))
	if !r.Healthy || r.Format != status.Format || len(r.Sections) != 2 || r.Time.Before(before.Add(-time.Second)) ||
		r.Time.Location() != time.UTC {
		t.Errorf("%+v", r)
	}
	if got := string(compact(t, r.Sections["consumer"].Value)) + string(compact(t,
		r.Sections["own"].Value)); got != `{"n":1}{"x":2}` {
		t.Error(got)
	}
}

func compact(t *testing.T, text json.RawMessage) []byte {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// A section that fails in whatever way says so, and takes nothing from the others.
func TestSectionsThatFail(t *testing.T) {
	t.Parallel()
	for says, fails := range map[string]status.Section{
		"no database: postgres://billing:***@db/x": func(context.Context) (any, error) {
			return nil, errors.New("no database: postgres://billing:hunter2@db/x")
		},
		"the section panicked: a string": func(context.Context) (any, error) { panic("hunter2") },
		"has no JSON":                    func(context.Context) (any, error) { return make(chan int), nil },
		"the section is nil":             nil,
		"no answer within":               func(context.Context) (any, error) { <-t.Context().Done(); return part{}, nil },
	} {
		r, text := get(t, status.Handler(status.Sections{
			"fails": fails,
			"works": func(context.Context) (any, error) { return part{N: 1}, nil },
		}, &status.Config{Timeout: timeoutFor(says)}))
		if r.Healthy || r.Sections["works"].Value == nil || !r.Sections["works"].Healthy() {
			t.Errorf("%s: %s", says, text)
		}
		if got := r.Sections["fails"]; !strings.Contains(got.Error, says) || got.Value != nil {
			t.Errorf("it says %q, want %q", got.Error, says)
		}
		if strings.Contains(text, "hunter2") {
			t.Errorf("it tells a secret: %s", text)
		}
	}
}

// timeoutFor is short only where it is meant to pass.
func timeoutFor(says string) time.Duration {
	if says == "no answer within" {
		return 100 * time.Millisecond
	}
	return time.Minute
}

// What has a problem has a value too.
func TestProblem(t *testing.T) {
	t.Parallel()
	r, _ := get(t, status.Handler(status.Sections{
		"consumer": func(context.Context) (any, error) { return part{N: 1, problem: "starting"}, nil },
	}, nil))
	if a := r.Sections["consumer"]; r.Healthy || a.Problem != "starting" || a.Value == nil || a.Error != "" {
		t.Errorf("%+v", r)
	}
}

// A section that hangs is called once, however often it is asked for, and again when it has returned.
func TestHangingSectionIsNotCalledAgain(t *testing.T) {
	t.Parallel()
	calls, release := make(chan struct{}, 10), make(chan struct{})
	h := status.Handler(status.Sections{"hangs": func(context.Context) (any, error) {
		calls <- struct{}{}
		<-release
		return part{}, nil
	}}, &status.Config{Timeout: 50 * time.Millisecond})
	for range 3 {
		if r, _ := get(t, h); r.Sections["hangs"].Error == "" {
			t.Errorf("it answered: %+v", r)
		}
	}
	if n := len(calls); n != 1 {
		t.Errorf("it was called %d times while the first call hung", n)
	}
	close(release)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if r, _ := get(t, h); r.Healthy {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("it is not called any more")
		}
	}
}

func TestOtherMethods(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	status.Handler(nil, nil).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
}

func TestLongTextsAreCut(t *testing.T) {
	t.Parallel()
	r, _ := get(t, status.Handler(status.Sections{"x": func(context.Context) (any, error) {
		return nil, errors.New(strings.Repeat("ä", 10_000))
	}}, nil))
	if n := len(r.Sections["x"].Error); n > 600 {
		t.Errorf("%d bytes", n)
	}
}
