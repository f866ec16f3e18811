package console

import (
	"bytes"
	"cmp"
	"context"
	"embed"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
)

// pages are all of them, in the order of the navigation. A new one is a method of Console in a file of its own, a
// template, and a line here.
var pages = []page{
	{pattern: "/{$}", nav: "Overview", template: "overview", live: true, show: (*Console).overview},
	{pattern: "/partitions", nav: "Partitions", template: "partitions", live: true, show: (*Console).partitions},
	{pattern: "/group", template: "group", live: true, show: (*Console).group},
	{pattern: "/process", template: "process", live: true, show: (*Console).process},
	{pattern: "/message", nav: "Message", template: "message", show: (*Console).message},
	{pattern: "/dead", nav: "Dead letters", template: "dead", show: (*Console).deadPage, when: hasDead},
	{pattern: "/letters", under: "/dead", template: "letters", show: (*Console).lettersPage},
	{pattern: "/letter", under: "/dead", template: "letter", show: (*Console).letterPage},
	{pattern: "/outbox", nav: "Outbox", template: "outbox", show: (*Console).outboxPage, when: hasOutbox},
	{pattern: "/events", under: "/outbox", template: "events", show: (*Console).eventsPage},
	{pattern: "/event", under: "/outbox", template: "event", show: (*Console).eventPage},
	{pattern: "/levers", nav: "Levers", template: "levers", live: true, show: (*Console).leversPage, when: hasLevers},
	{pattern: "/jobs", nav: "Jobs", template: "jobs", live: true, show: (*Console).jobsPage, when: hasJobs},
	{pattern: "/job", under: "/jobs", template: "job", live: true, show: (*Console).jobPage},
}

// deeds are all actions. A new one is a deed in the file of its page, and a line here.
var deeds = []deed{
	stopJob,
	discardLetters,
	redriveLetters,
	retryEvents,
	discardEvents,
	editEvent,
	pausePartitions,
	resumePartitions,
	tryMessage,
	replayWindow,
}

// page is one of them.
type page struct {
	pattern  string // of http.ServeMux, without a method; at most two segments
	nav      string // its name in the navigation; "" for a page to which others link
	under    string // the pattern of the page of the navigation to which it belongs; "" for none
	template string // a file of templates/, which defines "main"
	live     bool   // it is asked for again every few seconds while somebody looks

	// show returns the title and what the template shows, as .Body. A *refusal as the error has a status of its own.
	show func(c *Console, r *http.Request) (title string, body any, err error)

	// when reports whether there is anything to show; nil if there always is. The navigation leaves it out otherwise.
	when func(c *Console) bool
}

// view is what the layout shows.
type view struct {
	Title   string
	Console string // Config.Title
	Base    string // what a link begins with: the console's own root, relative to the page
	Nav     []navItem
	Live    bool
	At      time.Time
	Body    any
	Version string // of the assets

	r *http.Request
	c *Console
}

type navItem struct {
	Name, Path string
	Here       bool // it is this page
	Within     bool // this page belongs to it
}

//go:embed templates/*.html
var templateFiles embed.FS

// templates has the layout with each page, by the page's name.
var templates = parseTemplates()

func parseTemplates() map[string]*template.Template {
	layout := template.Must(template.New("layout.html").Funcs(functions).ParseFS(templateFiles, "templates/layout.html",
		"templates/parts.html"))
	all := map[string]*template.Template{}
	files, err := templateFiles.ReadDir("templates")
	if err != nil {
		panic(err) // they are embedded
	}
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".html"); name != "layout" && name != "parts" {
			all[name] = template.Must(template.Must(layout.Clone()).ParseFS(templateFiles, "templates/"+f.Name()))
		}
	}
	return all
}

// page serves a page. What it has to ask for has all in all a time that a reader would wait for.
func (c *Console) page(p *page) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), 2*c.cfg.Timeout)
		defer cancel()
		r = r.WithContext(ctx)
		title, body, err := p.show(c, r)
		if err != nil {
			c.refuse(w, r, err)
			return
		}
		c.render(w, r, http.StatusOK, p, title, body)
	})
}

// render writes a page, or nothing of it.
func (c *Console) render(w http.ResponseWriter, r *http.Request, code int, p *page, title string, body any) {
	v := view{Title: title, Console: c.cfg.Title, Base: base(r), Live: p.live, At: time.Now(), Body: body,
		Version: c.assets.version, r: r, c: c}
	for _, other := range pages {
		if other.nav != "" && (other.when == nil || other.when(c)) {
			path := strings.TrimPrefix(strings.TrimSuffix(other.pattern, "{$}"), "/")
			v.Nav = append(v.Nav, navItem{other.nav, path, "/"+path == r.URL.Path, p.under == other.pattern})
		}
	}
	var text bytes.Buffer
	if err := templates[p.template].Execute(&text, &v); err != nil {
		c.cfg.Logger.ErrorContext(r.Context(), "einmal: a page of the console could not be made",
			slog.String("page", p.template), slog.Any("error", err))
		http.Error(w, "the page could not be made; the log has the reason", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(text.Bytes()) // a browser that has gone
}

// base is the way from the page to the console's root.
func base(r *http.Request) string {
	return cmp.Or(strings.Repeat("../", max(0, strings.Count(r.URL.Path, "/")-1)), "./")
}

// Allowed reports whether the request may do the action, so that a page shows only what can be used.
func (v *view) Allowed(verb Verb) bool { return v.c.allows(v.r, Action{Verb: verb}) == nil }

// Values reports whether the request may see values.
func (v *view) Values() bool { return v.c.showsValues(v.r) }

func (c *Console) showsValues(r *http.Request) bool {
	return c.cfg.ShowValues != nil && c.cfg.ShowValues(r)
}

// refusal is an error with a status, a sentence, and what to do about it.
type refusal struct {
	code      int
	Says, Why string
}

func (e *refusal) Error() string { return e.Says }

// refusalPage shows one.
var refusalPage = page{template: "refusal"}

// refuse serves an error as a page.
func (c *Console) refuse(w http.ResponseWriter, r *http.Request, err error) {
	e, ok := errors.AsType[*refusal](err)
	if !ok {
		e = &refusal{http.StatusBadGateway, "This could not be asked for.", shownError(err)}
	}
	c.render(w, r, e.code, &refusalPage, http.StatusText(e.code), e)
}

// shownError is what a page has of an error.
func shownError(err error) string {
	return redact.Text(strings.TrimPrefix(err.Error(), "einmal: "), redact.MaxError)
}

// Audits reports whether there is an audit table.
func (v *view) Audits() bool { return v.c.cfg.Audit != nil }
