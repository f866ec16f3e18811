package console

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Console is an http.Handler. It is safe for concurrent use.
type Console struct {
	cfg      Config
	http     http.Handler
	assets   *assets
	history  *history
	since    *sinceWhen
	results  *results
	jobs     *jobs
	dead     []*deadTable
	outboxes []*outboxTable
	tables   []*source[tableSeen]

	processes []*process
	groups    *groups
	reading   chan struct{} // one message at a time is read from Kafka
}

// New returns a Console. It does no I/O and starts nothing; the error lists all that is wrong with cfg. The sources
// stay the caller's.
//
// Mount it under a path that ends with a slash, by http.StripPrefix: its links are relative, so that it need not know
// the path, whatever stands before it.
func New(cfg Config) (*Console, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Console{
		cfg: cfg.withDefaults(), history: newHistory(), since: newSinceWhen(), results: newResults(), jobs: newJobs(),
		reading: make(chan struct{}, 1),
	}
	for _, p := range c.cfg.Processes {
		c.processes = append(c.processes, newProcess(p, c.cfg.Timeout))
	}
	c.dead = newDeadTables(c.cfg.DeadLetters)
	c.outboxes = newOutboxTables(c.cfg.Outboxes)
	c.tables = c.newTableSources()
	c.groups = newGroups(c.cfg.Kafka, c.cfg.Timeout)
	c.assets = newAssets()
	c.http = c.routes()
	return c, nil
}

// Run looks at all sources every Config.Every, so that there are graphs of the last hour, until ctx is done; then it
// returns nil. Without it the console works, without graphs. Jobs that people have begun end with it: it returns when
// they have. It keeps some 3 KiB for each line of a graph, and at most 1,000 of them.
func (c *Console) Run(ctx context.Context) error {
	defer c.jobs.end()
	tick := time.NewTicker(c.cfg.Every)
	defer tick.Stop()
	for {
		c.history.add(c.look(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "" { // mounted without a slash: relative links would lead beside it
		at, err := url.ParseRequestURI(r.RequestURI)
		if err == nil {
			w.Header().Set("Location", at.EscapedPath()[strings.LastIndexByte(at.EscapedPath(), '/')+1:]+"/")
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
	}
	c.http.ServeHTTP(w, r)
}

// contentPolicy lets a page have what the console itself serves, and nothing else: no script and no style in the text
// of a page.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// routes are the pages, the actions and the assets, behind what holds for all.
func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	for _, p := range pages {
		mux.Handle("GET "+p.pattern, c.page(&p))
	}
	mux.Handle("GET /do/{verb}", http.HandlerFunc(c.ask))
	mux.Handle("POST /do/{verb}", http.HandlerFunc(c.act))
	mux.Handle("GET /done/{id}", c.page(&donePage))
	mux.Handle("GET /assets/{name}", c.assets)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { c.refuse(w, r, notFound(mux, r)) })
	guarded := http.NewCrossOriginProtection()
	guarded.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.cfg.Logger.WarnContext(r.Context(), "einmal: a request to the console came from another site, it is refused",
			attrs(c.cfg.User(r), r.URL.Path, "", "")...)
		c.refuse(w, r, &refusal{http.StatusForbidden, "This request came from another site.",
			"Actions are done from the console's own pages only. Nothing was done."})
	}))
	inner := guarded.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		inner.ServeHTTP(w, r)
	})
}

// notFound says what is wrong with a request that no route takes.
func notFound(mux *http.ServeMux, r *http.Request) *refusal {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		asked := r.Clone(r.Context())
		asked.Method = http.MethodGet
		if _, pattern := mux.Handler(asked); pattern != "/" {
			return &refusal{http.StatusMethodNotAllowed, "This page can only be read.", "Nothing was done."}
		}
	}
	return &refusal{http.StatusNotFound, "There is no such page.",
		"If no page is found at all, the console is mounted without http.StripPrefix."}
}
