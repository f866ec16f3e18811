package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/status"
)

// process is a Process, and its report.
type process struct {
	Process

	report *source[*report]
}

func newProcess(p Process, timeout time.Duration) *process {
	ask := func(ctx context.Context) ([]byte, error) { return askHandler(ctx, p.Status) }
	if p.URL != "" {
		at, _ := url.Parse(p.URL) // validate has looked at it
		ask = func(ctx context.Context) ([]byte, error) { return status.Fetch(ctx, at, p.Token) }
	}
	return &process{Process: p, report: newSource(timeout, func(ctx context.Context) (*report, error) {
		text, err := ask(ctx)
		if err != nil {
			return nil, err
		}
		return readReport(text)
	})}
}

// askHandler asks a handler of this process, without a network.
func askHandler(ctx context.Context, h http.Handler) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	if err != nil {
		return nil, err
	}
	w := &answered{header: http.Header{}, code: http.StatusOK}
	h.ServeHTTP(w, r)
	if w.code != http.StatusOK {
		return nil, fmt.Errorf("the status handler answers %d %s", w.code, http.StatusText(w.code))
	}
	return w.Bytes(), nil
}

// answered is an http.ResponseWriter in memory.
type answered struct {
	bytes.Buffer

	header http.Header
	code   int
}

func (w *answered) Header() http.Header  { return w.header }
func (w *answered) WriteHeader(code int) { w.code = code }

// processView is a process on its page.
type processView struct {
	Name, URL, Console string
	Answer             answer[*report]
	Sections           []sectionView
}

// sectionView is a part of a report.
type sectionView struct {
	Name, Problem, Error string
	Value                string // JSON
}

// process is the page of one process: all that it tells.
func (c *Console) process(r *http.Request) (title string, body any, err error) {
	name := r.URL.Query().Get("name")
	i := slices.IndexFunc(c.processes, func(p *process) bool { return p.Name == name })
	if i < 0 {
		return "", nil, &refusal{http.StatusNotFound, "There is no such process.",
			"The console knows those of its configuration."}
	}
	p := c.processes[i]
	v := processView{Name: p.Name, Console: p.Console, Answer: p.report.look(r.Context())}
	if at, err := url.Parse(p.URL); err == nil && p.URL != "" {
		v.URL = redact.URL(at)
	}
	if v.Answer.Err == nil {
		for _, name := range slices.Sorted(maps.Keys(v.Answer.Value.Sections)) {
			a := v.Answer.Value.Sections[name]
			v.Sections = append(v.Sections, sectionView{name, a.Problem, a.Error, indented(a.Value)})
		}
	}
	return "Process " + p.Name, &v, nil
}

// indented is JSON for people; "" for none.
func indented(value json.RawMessage) string {
	var text bytes.Buffer
	if len(value) == 0 || json.Indent(&text, value, "", "  ") != nil {
		return ""
	}
	return string(redact.JSON(text.Bytes()))
}

// errorOf is what a page shows of the error of a source.
func (a answer[T]) Why() string {
	if a.Err == nil {
		return ""
	}
	if errors.Is(a.Err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return shownError(a.Err)
}
