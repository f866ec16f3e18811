package idemtest

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// TableStays checks that answers stay in the table that was found first, whatever a handler leaves or makes in its
// session, and whatever is created under a running service.
func TableStays[Tx any](t *testing.T, open func(t testing.TB, url string) idempotency.Store[Tx], exec Exec[Tx]) {
	t.Helper()
	for name, c := range map[string]struct{ inside, outside string }{
		"search_path":         {"set search_path to elsewhere", ""},
		"search_path of none": {"set search_path to ''", ""},
		"temporary table":     {"create temporary table idempotency_key (like idempotency_key including all)", ""},
		"dropped below":       {"", "create table nearer.idempotency_key (like idempotency_key including all)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, err := url.Parse(serverstest.DatabaseURL(t))
			if err != nil {
				t.Fatal(err)
			}
			query := at.Query()
			home := query.Get("search_path")
			names := strings.NewReplacer("nearer", home+"_nearer", "elsewhere", home+"_elsewhere")
			db, err := pgx.Connect(t.Context(), at.String())
			if err != nil {
				t.Fatal(err)
			}
			run := func(text string) {
				t.Helper()
				if _, err := db.Exec(context.WithoutCancel(t.Context()), names.Replace(text)); err != nil {
					t.Error(err)
				}
			}
			run("create schema nearer; create schema elsewhere")
			t.Cleanup(func() {
				run("drop schema nearer cascade; drop schema elsewhere cascade")
				_ = db.Close(context.Background())
			})
			run(schema.Postgres.SQL(nil, schema.Idempotency) + schema.Postgres.SQL(&schema.Config{Schema: "elsewhere"},
				schema.Idempotency))
			query.Set("search_path", names.Replace("nearer,")+home)
			at.RawQuery = query.Encode()
			store := open(t, at.String())
			once := func(key, leave string, replay bool) {
				t.Helper()
				_, replayed, err := store.Once(t.Context(), idempotency.Request{Key: key, Keep: time.Hour},
					func(ctx context.Context, tx Tx) (idempotency.Answer, error) {
						return idempotency.Answer{Status: 200}, exec(ctx, tx, names.Replace(leave))
					})
				if err != nil || replayed != replay {
					t.Errorf("%s: replayed %v, %v, want %v", key, replayed, err, replay)
				}
			}
			once("first", c.inside, false)
			run(c.outside)
			once("first", c.inside, true)
			once("second", "", false)
			once("second", "", true)
			var n int
			if err := db.QueryRow(t.Context(), "select count(*) from "+home+".idempotency_key").Scan(&n); err != nil || n != 2 {
				t.Errorf("%d answers, %v, in the schema of the start, want 2", n, err)
			}
		})
	}
}
