package idemsql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/einmal-go/einmal/dedupstore/sqlstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/internal/idemsql"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// An answer that expires between the statement of the locks, which takes none because it is there, and the look for it
// is no request in progress: the request runs.
func TestAnswerExpiresBetweenLockAndFind(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("pgx", serverstest.DatabaseURL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), schema.Postgres.SQL(nil, schema.Idempotency)); err != nil {
		t.Fatal(err)
	}
	expire := false
	store := idemsql.New("idemsql", idemsql.Driver[*sql.Tx]{
		Transactor: sqlstore.New(db, schema.Postgres, nil),
		Run: func(ctx context.Context, tx *sql.Tx, steps ...idemsql.Step) error {
			if !expire {
				return idemsql.RunSQL(ctx, tx, steps...)
			}
			expire = false
			if err := idemsql.RunSQL(ctx, tx, steps[0]); err != nil {
				return err
			}
			_, err := db.ExecContext(ctx, "update idempotency_key set expires_at = clock_timestamp()")
			if err != nil {
				return err
			}
			return idemsql.RunSQL(ctx, tx, steps[1:]...)
		},
		Ask: idemsql.AskSQL(db),
	}, schema.Postgres, idemsql.Config{Timeout: time.Minute})
	runs := 0
	once := func() (idempotency.Answer, bool) {
		t.Helper()
		answer, replayed, err := store.Once(t.Context(), idempotency.Request{Key: "key", Keep: time.Hour},
			func(context.Context, *sql.Tx) (idempotency.Answer, error) {
				runs++
				return idempotency.Answer{Status: 200 + runs}, nil
			})
		if err != nil {
			t.Errorf("Once() = %v", err)
		}
		return answer, replayed
	}
	once()
	expire = true
	if answer, replayed := once(); replayed || answer.Status != 202 || expire {
		t.Errorf("after the answer has expired: status %d, replayed %v, want 202 of a second run", answer.Status, replayed)
	}
	if answer, replayed := once(); !replayed || answer.Status != 202 {
		t.Errorf("the repetition: status %d, replayed %v, want the answer of the second run", answer.Status, replayed)
	}
}
