package status

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/einmal-go/einmal/internal/safelog"
)

// Section tells one part of the status. The value is put into JSON by encoding/json; if it is a Problemer, that is
// asked too. It must be safe for concurrent use, and return soon after ctx is done. Its value must hold no payload, key
// or secret.
type Section func(ctx context.Context) (any, error)

// Sections are the parts of a status by name.
type Sections map[string]Section

// Problemer is implemented by the values of sections that know whether they are well.
type Problemer interface {
	// Problem says in a few words what is wrong; "" if nothing is.
	Problem() string
}

// Config is what can be chosen about Handler. Nil means all defaults.
type Config struct {
	// Timeout is how long all sections may take, side by side. A section that is not ready by then is an error in the
	// answer. Defaults to 5 s.
	Timeout time.Duration

	// Logger is told when an answer cannot be sent. Defaults to slog.Default().
	Logger *slog.Logger
}

const defaultTimeout = 5 * time.Second

// Format is the number of the JSON's format. It changes when a field changes its meaning or goes, not when one is
// added.
const Format = 1

// Report is what Handler serves.
type Report struct {
	Format   int               `json:"format"` // Format
	Time     time.Time         `json:"time"`   // when it was asked for, in UTC
	Healthy  bool              `json:"healthy"`
	Sections map[string]Answer `json:"sections"`
}

// Answer is what a section has told. Either Value or Error is set.
type Answer struct {
	Problem string          `json:"problem,omitempty"` // what is wrong; "" if the value knows of nothing, or does not say
	Error   string          `json:"error,omitempty"`   // why there is no value
	Value   json.RawMessage `json:"value,omitempty"`
}

// Healthy is whether the section has answered, and knows of no problem.
func (a Answer) Healthy() bool { return a.Error == "" && a.Problem == "" }

// Handler serves a Report of the sections. All are asked at each request, side by side. One that fails, panics, takes
// too long, or whose value has no JSON says so in its Answer, and takes nothing from the others; one that has still not
// returned is not called again meanwhile.
//
// The status code is 200 whenever there is a Report, healthy or not: this is no probe. It answers GET and HEAD, others
// with 405. Sections and cfg must not be changed afterwards.
func Handler(sections Sections, cfg *Config) http.Handler {
	h := &handler{timeout: defaultTimeout}
	if cfg != nil {
		h.timeout, h.log = cmp.Or(cfg.Timeout, defaultTimeout), cfg.Logger
	}
	h.log = safelog.Logger(h.log)
	for _, name := range slices.Sorted(maps.Keys(sections)) {
		h.sections = append(h.sections, &section{name: name, tell: sections[name], free: make(chan struct{}, 1)})
	}
	return h
}

type handler struct {
	sections []*section
	timeout  time.Duration
	log      *slog.Logger
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "the status can be read, by GET", http.StatusMethodNotAllowed)
		return
	}
	text, err := json.MarshalIndent(h.report(r.Context()), "", "  ")
	if err != nil {
		h.log.ErrorContext(r.Context(), "einmal: the status has no JSON", slog.Any("error", err))
		http.Error(w, "the status has no JSON", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if _, err := w.Write(append(text, '\n')); err != nil {
		h.log.DebugContext(r.Context(), "einmal: the status could not be sent", slog.Any("error", err))
	}
}

// report asks all sections.
func (h *handler) report(ctx context.Context) *Report {
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	answers := make([]<-chan Answer, len(h.sections))
	for i, s := range h.sections {
		answers[i] = s.ask(ctx)
	}
	r := &Report{Format: Format, Time: time.Now().UTC(), Healthy: true, Sections: map[string]Answer{}}
	for i, s := range h.sections {
		a := await(ctx, answers[i], h.timeout)
		r.Sections[s.name], r.Healthy = a, r.Healthy && a.Healthy()
	}
	return r
}
