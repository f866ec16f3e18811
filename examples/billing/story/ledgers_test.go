package story

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// The page shows all ledgers as of one moment: what is written into them in one transaction is in all of them, or in
// none.
func TestLedgersAreOfOneMoment(t *testing.T) {
	t.Parallel()
	db := Databases{serverstest.DatabaseURL(t), serverstest.DatabaseURL(t), serverstest.DatabaseURL(t),
		serverstest.DatabaseURL(t), serverstest.DatabaseURL(t), nil}
	pool, err := pgxpool.New(t.Context(), db.Story)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	inserts := ""
	for _, l := range ledgers {
		err := with(t.Context(), db.of(l.service), func(own *pgxpool.Pool) error {
			var schema string
			if err := own.QueryRow(t.Context(), "select current_schema()").Scan(&schema); err != nil {
				return err
			}
			table := pgx.Identifier{schema, l.table}.Sanitize()
			inserts += "insert into " + table + " values ('r');"
			_, err := own.Exec(t.Context(), "create table "+table+" (reference text)")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	defer writer.Wait()
	defer stop()
	writer.Go(func() {
		for ctx.Err() == nil {
			_, _ = pool.Exec(ctx, inserts) // one transaction
		}
	})
	s := &Story{Options: Options{Databases: db}, pool: pool}
	seen := map[int]bool{}
	for range 30 {
		looks, err := s.lookAtLedgers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range looks {
			if looks[i].rows != looks[0].rows {
				t.Fatalf("%v: they are of several moments", looks)
			}
		}
		seen[looks[0].rows] = true
	}
	if len(seen) < 2 {
		t.Errorf("%d different looks: nothing was written meanwhile", len(seen))
	}
}
