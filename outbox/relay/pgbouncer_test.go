package relay_test

import (
	"log/slog"
	"net/url"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/tabletest"
	"github.com/einmal-go/einmal/schema"
)

// Behind pgbouncer in transaction mode nothing may be left to the session: locks and settings are the transaction's.
func TestRelayBehindPgbouncer(t *testing.T) {
	t.Parallel()
	pooler, err := url.Parse(serverstest.PoolerURL(t))
	must(t, err)
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			b := newBench(t, 2)
			direct, err := url.Parse(b.URL)
			must(t, err)
			u := *pooler
			u.Path = direct.Path
			q := u.Query()
			q.Set("default_query_exec_mode", "exec")
			u.RawQuery = q.Encode()
			tables := &schema.Config{Schema: tabletest.Value[string](b.Fixture, "select current_schema()")}
			write, db := tabletest.Drivers[0].Open(t, u.String(), &outbox.WriterConfig{Tables: tables, LockKeys: true})
			for range 2 {
				cfg := b.config(mode)
				cfg.Database, cfg.Tables, cfg.Logger = db, tables, slog.Default()
				start(t, cfg)
			}
			for range 50 {
				must(t, write(t.Context(), tabletest.Commit, outbox.Event{Topic: b.topic, Key: []byte("k")},
					outbox.Event{Topic: b.topic, Key: []byte("l")}))
			}
			eventually(t, "all are sent", func() bool { return b.rows("true") == 0 })
		})
	}
}
