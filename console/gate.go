package console

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
)

const (
	maxForm    = 1 << 20 // bytes
	maxReason  = 500     // bytes
	maxResults = 100     // that are kept
)

var errReadOnly = errors.New("this console is read-only: Config.Authorize is not set")

// allows asks Config.Authorize.
func (c *Console) allows(r *http.Request, a Action) error {
	if c.cfg.Authorize == nil {
		return errReadOnly
	}
	return c.cfg.Authorize(r, a)
}

func deedOf(r *http.Request) (*deed, error) {
	for i := range deeds {
		if string(deeds[i].verb) == r.PathValue("verb") {
			return &deeds[i], nil
		}
	}
	return nil, &refusal{http.StatusNotFound, "There is no such action.", "Nothing was done."}
}

// request is an action that is asked for.
type request struct {
	*deed

	Args url.Values
	Plan *plan

	Title, Button string
	Problem       string // with what was sent
	Reason        string
}

// askPage asks whether to do it, and why.
var askPage = page{template: "ask"}

// ask shows what an action would do, with the form that does it. It does nothing.
func (c *Console) ask(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*c.cfg.Timeout)
	defer cancel()
	q, err := c.prepare(ctx, r, r.URL.Query())
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	c.render(w, r, http.StatusOK, &askPage, q.Title, q)
}

// prepare finds the deed, has it look at its arguments, and asks whether it is allowed.
func (c *Console) prepare(ctx context.Context, r *http.Request, args url.Values) (*request, error) {
	d, err := deedOf(r)
	if err != nil {
		return nil, err
	}
	if c.cfg.Authorize == nil { // nothing is looked up for who can do nothing
		return nil, refused(errReadOnly)
	}
	p, err := d.prepare(ctx, c, args)
	if err != nil {
		return nil, err
	}
	if err := c.allows(r, Action{Verb: d.verb, Target: p.Target}); err != nil {
		if r.Method == http.MethodPost {
			c.cfg.Logger.WarnContext(ctx, "einmal: an action in the console was not allowed",
				attrs(c.cfg.User(r), string(d.verb), p.Target, "")...)
		}
		return nil, refused(err)
	}
	return &request{deed: d, Args: args, Plan: p, Title: d.title, Button: d.button}, nil
}

func refused(err error) error {
	return &refusal{http.StatusForbidden, "You may not do this.", shownError(err) + ". Nothing was done."}
}

// act does an action: the one way to all of them. The cross-origin check is around all routes.
func (c *Console) act(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		c.refuse(w, r, &refusal{http.StatusBadRequest, "The form could not be read.", "Nothing was done."})
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTimeout) // a browser that goes away does not undo half of it
	defer cancel()
	q, err := c.prepare(ctx, r, r.PostForm)
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	if q.Reason = strings.TrimSpace(r.PostForm.Get("reason")); q.Reason == "" || len(q.Reason) > maxReason {
		q.Problem = "Say why, in a sentence: it goes into the log, and others will ask."
		c.render(w, r, http.StatusUnprocessableEntity, &askPage, q.Title, q)
		return
	}
	e := Entry{Time: time.Now().UTC(), Who: redact.Line(c.cfg.User(r)), Action: q.verb, Target: q.Plan.Target,
		Reason: redact.Line(redact.Text(q.Reason, maxReason))}
	done, err := c.do(ctx, q, &e)
	if err != nil {
		c.refuse(w, r, err)
		return
	}
	w.Header().Set("Location", base(r)+done) // relative: see New
	w.WriteHeader(http.StatusSeeOther)
}

// actTimeout is how long an action may take.
const actTimeout = 30 * time.Second

// do writes the row, does the deed, and tells of it. It returns the address of what is to be seen next.
func (c *Console) do(ctx context.Context, q *request, e *Entry) (next string, err error) {
	var row int64
	if c.cfg.Audit != nil {
		if row, err = c.cfg.Audit.Begin(ctx, *e); err != nil {
			c.cfg.Logger.ErrorContext(ctx, "einmal: the row about an action cannot be written, it is not done",
				append(attrs(e.Who, string(e.Action), e.Target, e.Reason), slog.Any("error", err))...)
			return "", &refusal{http.StatusServiceUnavailable, "The audit table cannot be written.",
				"So nothing was done. The log has the reason."}
		}
	}
	out, failed := q.deed.do(ctx, c, q.Args, e)
	if out.job != nil {
		c.cfg.Logger.InfoContext(ctx, "einmal: a job of the console has begun",
			attrs(e.Who, string(e.Action), e.Target, e.Reason)...)
		c.jobs.launch(out.job, func(changed int64, err error) {
			ctx, cancel := context.WithTimeout(context.Background(), actTimeout)
			defer cancel()
			c.tell(ctx, e, row, outcome{Count: changed}, err)
		})
		return out.Next, nil
	}
	c.tell(ctx, e, row, out, failed)
	if r, ok := errors.AsType[*refusal](failed); ok && out.Count == 0 {
		return "", r
	}
	if failed == nil && out.Next != "" {
		return out.Next, nil
	}
	return "done/" + c.results.keep(result{Entry: *e, Title: q.deed.title, Back: q.Plan.Back, Count: out.Count,
		Says: out.Says, Failed: failed}), nil
}

// tell writes the line of the log, and completes the row.
func (c *Console) tell(ctx context.Context, e *Entry, row int64, out outcome, failed error) {
	line, text := append(attrs(e.Who, string(e.Action), e.Target, e.Reason), slog.Int64("count", out.Count)), ""
	if failed != nil {
		text = shownError(failed)
		c.cfg.Logger.WarnContext(ctx, "einmal: an action in the console has failed",
			append(line, slog.Any("error", failed))...)
	} else {
		c.cfg.Logger.InfoContext(ctx, "einmal: an action in the console was done", line...)
	}
	if c.cfg.Audit == nil {
		return
	}
	if err := c.cfg.Audit.End(ctx, row, out.Count, text); err != nil {
		c.cfg.Logger.ErrorContext(ctx, "einmal: the row about an action could not be completed",
			append(line, slog.Any("error", err))...)
	}
}

// attrs are what lines about actions have in common.
func attrs(who, action, target, reason string) []any {
	list := []any{slog.String("user", redact.Line(who)), slog.String("action", action)}
	if target != "" {
		list = append(list, slog.String("target", target))
	}
	if reason != "" {
		list = append(list, slog.String("reason", reason))
	}
	return list
}

// result is what an action came to.
type result struct {
	Entry

	Title, Back, Says string
	Count             int64
	Failed            error
}

// FailedText is why it failed.
func (r *result) FailedText() string {
	if r.Failed == nil {
		return ""
	}
	return shownError(r.Failed)
}

// results are the last ones, each with an address that a reload may ask for again. It is safe for concurrent use.
type results struct {
	mu    sync.Mutex
	order []string
	by    map[string]result
}

func newResults() *results { return &results{by: map[string]result{}} }

func (s *results) keep(r result) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id = rand.Text()
	s.by[id], s.order = r, append(s.order, id)
	if len(s.order) > maxResults {
		delete(s.by, s.order[0])
		s.order = s.order[1:]
	}
	return id
}

func (s *results) get(id string) (result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.by[id]
	return r, ok
}

var donePage = page{template: "done", show: (*Console).done}

func (c *Console) done(r *http.Request) (title string, body any, err error) {
	found, ok := c.results.get(r.PathValue("id"))
	if !ok {
		return "", nil, &refusal{http.StatusNotFound, "This result is not kept any more.",
			"The log, and the audit table if there is one, have what was done."}
	}
	return found.Title, &found, nil
}

// Verb is the action's.
func (q *request) Verb() Verb { return q.verb }

// Hidden are the arguments that the form repeats: those that people give are its fields.
func (q *request) Hidden() url.Values {
	hidden := url.Values{}
	for name, values := range q.Args {
		if name != "reason" && !slices.ContainsFunc(q.Plan.Fields, func(f field) bool { return f.Name == name }) {
			hidden[name] = values
		}
	}
	return hidden
}
