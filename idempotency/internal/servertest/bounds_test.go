package servertest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

// A request waits for a connection no longer than it may: of a pool whose connections are all in use, or of a database
// that takes connections and says nothing. With a key and without one.
func TestBeginTimeout(t *testing.T) {
	t.Parallel()
	full := database(t)
	cfg := full.Config().Copy()
	cfg.MaxConns, cfg.MinConns = 1, 0
	small, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(small.Close)
	held, err := small.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	hole, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hole.Close() })
	dark := behind(t, full, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, hole.Addr().String())
	})
	for name, s := range map[string]*service{
		"full": {small, serve(t, small, answering(201, "done"),
			idempotency.HandlerConfig{BeginTimeout: 200 * time.Millisecond, KeyOptional: true}), t},
		"black-holed": {dark, serve(t, dark, answering(201, "done"),
			idempotency.HandlerConfig{BeginTimeout: 200 * time.Millisecond, KeyOptional: true}), t},
	} {
		for _, key := range []string{"key", ""} {
			answered := make(chan *response, 1)
			go func() {
				answered <- s.do(func(r *http.Request) {
					if key != "" {
						r.Header.Set("Idempotency-Key", key)
					}
				}, http.MethodPost, "/", strings.NewReader("{}"))
			}()
			select {
			case r := <-answered:
				s.wantProblem(r, http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
				if r.Header.Get("Retry-After") == "" {
					t.Errorf("%s, key %q: there is no Retry-After", name, key)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s, key %q: no answer", name, key)
			}
		}
	}
}

// What is bounded is the wait for the transaction, not the handler.
func TestBeginTimeoutIsNotTheHandlers(t *testing.T) {
	t.Parallel()
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(3 * time.Second):
		}
		w.WriteHeader(http.StatusCreated)
		return write(ctx, tx)
	}, idempotency.HandlerConfig{BeginTimeout: 2 * time.Second})
	s.want(s.untilBegun("key"), 201, "", false)
	s.wantEffects(1)
}

// untilBegun repeats a request that a loaded machine has not begun in time.
func (s *service) untilBegun(key string) *response {
	s.t.Helper()
	r := s.post(key)
	for range 20 {
		if r.StatusCode != http.StatusServiceUnavailable {
			break
		}
		r = s.post(key)
	}
	return r
}

// A client whose patience is shorter than the handler finds the answer when it comes again, if the handler may finish;
// it may not for ever.
func TestFinishWithin(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		within  time.Duration
		stays   bool
		forever bool // the handler ends with its context only
	}{
		"not set": {0, false, true}, "long enough": {time.Minute, true, false},
		"too short": {300 * time.Millisecond, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs, gone, ended := make(chan struct{}, 9), make(chan struct{}), make(chan idempotency.Outcome, 9)
			s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, r *http.Request) error {
				if err := write(ctx, tx); err != nil {
					return err
				}
				if r.URL.Path == "/again" {
					w.WriteHeader(http.StatusAccepted)
					return nil
				}
				runs <- struct{}{}
				if c.forever {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				<-gone
				w.WriteHeader(http.StatusCreated)
				return nil
			}, idempotency.HandlerConfig{FinishWithin: c.within,
				OnAnswer: func(_ *http.Request, o idempotency.Outcome) { ended <- o }})
			ctx, leave := context.WithCancel(t.Context())
			left := make(chan struct{})
			go func() {
				defer close(left)
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, s.URL, strings.NewReader("{}"))
				req.Header.Set("Idempotency-Key", "key")
				if res, err := http.DefaultClient.Do(req); err == nil {
					_ = res.Body.Close()
				}
			}()
			<-runs
			leave()
			<-left
			time.Sleep(50 * time.Millisecond) // so that the server has noticed, most of the time
			close(gone)
			o := <-ended
			if want := idempotency.OutcomeFirst; c.stays && o != want || !c.stays && o == want {
				t.Errorf("the outcome is %s", o)
			}
			if c.stays {
				s.want(s.post("key"), 201, "", true)
				s.wantEffects(1)
				return
			}
			s.wantEffects(0)
		})
	}
}

// A client that waits is told when its handler may not finish.
func TestFinishWithinOfAClientThatWaits(t *testing.T) {
	t.Parallel()
	s := start(t, func(ctx context.Context, tx pgx.Tx, _ http.ResponseWriter, _ *http.Request) error {
		if err := write(ctx, tx); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}, idempotency.HandlerConfig{FinishWithin: 100 * time.Millisecond})
	s.wantProblem(s.post("key"), http.StatusServiceUnavailable, idempotency.ProblemUnavailable)
	s.wantEffects(0)
}

// Another request with the key of one in progress is a mistake that waiting does not cure.
func TestAnotherRequestInProgress(t *testing.T) {
	t.Parallel()
	runs, end := make(chan struct{}), make(chan struct{})
	s := start(t, func(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
		close(runs)
		<-end
		w.WriteHeader(http.StatusCreated)
		return write(ctx, tx)
	}, idempotency.HandlerConfig{})
	first := make(chan *response, 1)
	go func() { first <- s.post("key") }()
	<-runs
	s.wantProblem(s.send(http.MethodPost, "/", "key", "another"), http.StatusUnprocessableEntity,
		idempotency.ProblemOtherRequest)
	s.wantProblem(s.post("key"), http.StatusConflict, idempotency.ProblemInProgress)
	s.wantProblem(s.send(http.MethodPost, "/", "key", "another"), http.StatusUnprocessableEntity,
		idempotency.ProblemOtherRequest)
	close(end)
	s.want(<-first, 201, "", false)
	s.wantEffects(1)
}

// The fingerprint of one's own decides what is the same request.
func TestOwnFingerprint(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{Fingerprint: idempotency.ContentFingerprint})
	send := func(method, path, body string) *response {
		return s.do(func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "key")
			r.Header.Set("Content-Type", "application/json")
		}, method, path, strings.NewReader(body))
	}
	s.want(send("POST", "/a?x=1", `{"a":1,"b":2}`), 201, "done", false)
	s.want(send("POST", "/a?x=1", `{"b": 2,"a":1}`), 201, "done", true)
	for _, c := range [][3]string{{"PUT", "/a?x=1", `{"a":1,"b":2}`}, {"POST", "/b?x=1", `{"a":1,"b":2}`},
		{"POST", "/a?x=2", `{"a":1,"b":2}`}, {"POST", "/a?x=1", `{"a":1}`}} {
		s.wantProblem(send(c[0], c[1], c[2]), http.StatusUnprocessableEntity, idempotency.ProblemOtherRequest)
	}
	s.wantEffects(1)
}

// Who may not make the request is not shown what it was answered.
func TestAuthorize(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "secret"),
		idempotency.HandlerConfig{KeyOptional: true, Authorize: func(r *http.Request) error {
			body, err := io.ReadAll(r.Body)
			if err != nil || string(body) != "{}" {
				return errors.New("no body")
			}
			if r.Header.Get("Authorization") != "yes" {
				return errors.New("withdrawn")
			}
			return nil
		}})
	send := func(key, authorization string) *response {
		return s.do(func(r *http.Request) {
			r.Header.Set("Authorization", authorization)
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
		}, http.MethodPost, "/", strings.NewReader("{}"))
	}
	s.want(send("key", "yes"), 201, "secret", false)
	for _, key := range []string{"key", "other", ""} {
		r := send(key, "no")
		s.wantProblem(r, http.StatusForbidden, idempotency.ProblemNotAllowed)
		if strings.Contains(r.Text, "withdrawn") {
			t.Errorf("the answer says why: %s", r.Text)
		}
	}
	s.want(send("key", "yes"), 201, "secret", true)
	s.wantEffects(1)
}

// A principal has so many keys at once, and no more: what is kept is replayed all the same, and what has expired does
// not count.
func TestMaxKeys(t *testing.T) {
	t.Parallel()
	pool := database(t)
	cfg := idempotency.HandlerConfig{MaxKeys: 3,
		Principal: func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }}
	s := &service{pool, serve(t, pool, answering(201, "done"), cfg), t}
	send := func(user, key string) *response {
		return s.do(func(r *http.Request) {
			r.Header.Set("User", user)
			r.Header.Set("Idempotency-Key", key)
		}, http.MethodPost, "/", strings.NewReader("{}"))
	}
	for _, key := range []string{"1", "2", "3"} {
		s.want(send("anna", key), 201, "done", false)
	}
	r := send("anna", "4")
	s.wantProblem(r, http.StatusTooManyRequests, idempotency.ProblemTooManyKeys)
	if r.Header.Get("Retry-After") == "" {
		t.Error("there is no Retry-After")
	}
	s.want(send("anna", "2"), 201, "done", true)
	s.want(send("ben", "4"), 201, "done", false)
	if _, err := pool.Exec(t.Context(),
		"update idempotency_key set expires_at = now() - interval '1 s' where scope = 'anna' and key = '1'"); err != nil {
		t.Fatal(err)
	}
	s.want(send("anna", "4"), 201, "done", false)
	s.wantProblem(send("anna", "5"), http.StatusTooManyRequests, idempotency.ProblemTooManyKeys)
	s.wantEffects(5)
}

// A store that does not count cannot keep to it.
func TestMaxKeysNeedsAStoreThatCounts(t *testing.T) {
	t.Parallel()
	type plain struct{ idempotency.Store[pgx.Tx] }
	cfg := idempotency.HandlerConfig{SingleTenant: true, MaxKeys: 1}
	if _, err := idempotency.NewHandler(plain{pgxidempotency.New(nil, nil)}, answering(200, ""), cfg); err == nil ||
		!strings.Contains(err.Error(), "KeyCounter") {
		t.Errorf("NewHandler() = %v", err)
	}
}

// Of the header the handler's own is kept: what a middleware outside sets for one client is not replayed to another
// one, and what the handler has added to its fields comes behind those of the next one's.
func TestHeadersOfTheHandlerAlone(t *testing.T) {
	t.Parallel()
	pool := database(t)
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil),
		func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
			h := w.Header()
			h.Add("Vary", "Accept")
			h.Add("Link", "</self>; rel=self")
			h.Set("Content-Language", "de")
			h.Set("Content-Range", "bytes 0-1/10")
			h.Set("ETag", `"outer"`) // as the middleware does
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "ab")
			return nil
		}, idempotency.HandlerConfig{SingleTenant: true, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{pool, listen(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		for name, values := range r.Header {
			if outer, ok := strings.CutPrefix(name, "X-Outer-"); ok {
				h[http.CanonicalHeaderKey(outer)] = values
			}
		}
		handler.ServeHTTP(w, r)
	})), t}
	want := func(outer map[string]string, fields map[string]string, replayed bool) {
		t.Helper()
		r := s.do(func(r *http.Request) {
			r.Header.Set("Idempotency-Key", "key")
			r.Header.Set("Accept-Encoding", "identity")
			for name, value := range outer {
				r.Header.Set("X-Outer-"+name, value)
			}
		}, http.MethodPost, "/", strings.NewReader("{}"))
		s.want(r, http.StatusPartialContent, "ab", replayed)
		for name, value := range fields {
			if got := strings.Join(r.Header.Values(name), "|"); got != value {
				t.Errorf("replayed %v, outer %v: %s is %q, want %q", replayed, outer, name, got, value)
			}
		}
	}
	own := map[string]string{"Content-Language": "de", "Content-Range": "bytes 0-1/10", "Etag": `"outer"`,
		"Einmal-Added": ""}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{own, more} {
			maps.Copy(all, m)
		}
		return all
	}
	want(map[string]string{"Content-Encoding": "gzip", "Cache-Control": "private", "Vary": "Origin",
		"Content-Language": "en", "Etag": `"outer"`, "Link": "</outer>"},
		with(map[string]string{"Content-Encoding": "gzip", "Cache-Control": "private", "Vary": "Origin|Accept",
			"Link": "</outer>|</self>; rel=self"}), false)
	want(nil, with(map[string]string{"Content-Encoding": "", "Cache-Control": "", "Vary": "Accept",
		"Link": "</self>; rel=self"}), true)
	want(map[string]string{"Content-Encoding": "br", "Vary": "Accept-Encoding", "Cache-Control": "no-store",
		"Content-Language": "en"},
		with(map[string]string{"Content-Encoding": "br", "Cache-Control": "no-store", "Vary": "Accept-Encoding|Accept"}),
		true)
	want(map[string]string{"Vary": "Accept"}, with(map[string]string{"Vary": "Accept"}), true)
	var kept string
	if err := pool.QueryRow(t.Context(),
		"select convert_from(response_headers, 'latin1') from idempotency_key").Scan(&kept); err != nil {
		t.Fatal(err)
	}
	for _, outer := range []string{"gzip", "private", "Origin", "</outer>"} {
		if strings.Contains(kept, outer) {
			t.Errorf("the table has %q", kept)
		}
	}
}
