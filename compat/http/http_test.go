// Package http has the tests of routers and middlewares around and within idempotency.Handler.
package http

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	gingzip "github.com/gin-contrib/gzip"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/handlers"
	"github.com/jackc/pgx/v5"
	"github.com/klauspost/compress/gzhttp"
	"github.com/labstack/echo/v4"
	echomiddleware "github.com/labstack/echo/v4/middleware"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

var compressing = map[string]func(next http.Handler) http.Handler{
	"gorilla": handlers.CompressHandler,
	"chi":     middleware.Compress(5),
	"gzhttp":  func(next http.Handler) http.Handler { return gzhttp.GzipHandler(next) },
	"echo": func(next http.Handler) http.Handler {
		e := echo.New()
		e.Use(echomiddleware.Gzip())
		e.POST("/*", echo.WrapHandler(next))
		return e
	},
	"gin": func(next http.Handler) http.Handler {
		gin.SetMode(gin.ReleaseMode)
		g := gin.New()
		g.Use(gingzip.Gzip(gingzip.DefaultCompression))
		g.POST("/*path", gin.WrapH(next))
		return g
	},
}

var answer = `{"items":"` + strings.Repeat("item ", 1000) + `"}`

// effect answers with what compressing middlewares take.
func effect(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Add("Vary", "Origin")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, answer)
}

func serve(t *testing.T, fn idempotency.TxHandler[pgx.Tx], outside func(http.Handler) http.Handler) (url string) {
	t.Helper()
	pool := serverstest.Pool(t)
	if _, err := pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Idempotency)); err != nil {
		t.Fatal(err)
	}
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), fn,
		idempotency.HandlerConfig{SingleTenant: true})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(outside(handler))
	t.Cleanup(server.Close)
	return server.URL
}

// post returns the answer to a client that takes the encoding, and the text in it.
func post(t *testing.T, url, key, accept string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/orders", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Accept-Encoding", accept)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body := io.Reader(res.Body)
	if res.Header.Get("Content-Encoding") == "gzip" {
		if body, err = gzip.NewReader(res.Body); err != nil {
			t.Fatalf("%s, %s: what is called gzip is none: %v", key, accept, err)
		}
	}
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("%s, %s: %v", key, accept, err)
	}
	return res, string(text)
}

// A middleware outside that compresses does so for each client as that one wishes, whatever the first one's wish was.
func TestCompressionOutside(t *testing.T) {
	t.Parallel()
	for name, outside := range compressing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := serve(t, func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
				effect(w)
				return nil
			}, outside)
			for key, accepts := range map[string][]string{
				"packed": {"gzip", "identity", "gzip"}, "plain": {"identity", "gzip", "identity"},
			} {
				for i, accept := range accepts {
					res, text := post(t, url, key, accept)
					replayed := res.Header.Get(idempotency.ReplayedHeader) == "true"
					encoding := res.Header.Get("Content-Encoding")
					if res.StatusCode != http.StatusCreated || text != answer || replayed != (i > 0) ||
						(encoding == "gzip") != (accept == "gzip") {
						t.Errorf("%s, request %d, %s: %d, %q, replayed %v, %d bytes", key, i, accept, res.StatusCode, encoding, replayed,
							len(text))
					}
					if vary := strings.Join(res.Header.Values("Vary"), ","); strings.Count(vary, "Origin") != 1 {
						t.Errorf("%s, request %d: Vary is %q", key, i, vary)
					}
				}
			}
		})
	}
}

// A middleware inside is a part of the handler: what it packs is replayed as it was packed.
func TestCompressionInside(t *testing.T) {
	t.Parallel()
	for name, inside := range compressing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handler := inside(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { effect(w) }))
			url := serve(t, func(_ context.Context, _ pgx.Tx, w http.ResponseWriter, r *http.Request) error {
				handler.ServeHTTP(w, r)
				return nil
			}, func(next http.Handler) http.Handler { return next })
			for key, accept := range map[string]string{"packed": "gzip", "plain": "identity"} {
				var first http.Header
				for i := range 2 {
					res, text := post(t, url, key, accept)
					packed := res.Header.Get("Content-Encoding") == "gzip"
					if res.StatusCode != http.StatusCreated || text != answer || packed != (accept == "gzip") {
						t.Errorf("%s, request %d: %d, %q, %d bytes", key, i, res.StatusCode, res.Header, len(text))
					}
					if i == 0 {
						first = res.Header
					} else if res.Header.Get("Content-Length") != first.Get("Content-Length") ||
						res.Header.Get("Content-Type") != first.Get("Content-Type") {
						t.Errorf("%s: %q, and then %q", key, first, res.Header)
					}
				}
			}
		})
	}
}
