package idemsql_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

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
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		answerExpires(t, "pgx", serverstest.DatabaseURL(t), schema.Postgres,
			func(ctx context.Context, db *sql.DB, _ *sql.Tx) error {
				_, err := db.ExecContext(ctx, "update idempotency_key set expires_at = clock_timestamp()")
				return err
			})
	})
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		answerExpires(t, "sqlite", "file:"+t.TempDir()+"/db?_pragma=busy_timeout(5000)", schema.SQLite,
			func(ctx context.Context, _ *sql.DB, tx *sql.Tx) error { // nobody else can write meanwhile
				_, err := tx.ExecContext(ctx, "update idempotency_key set expires_at = '2000-01-01T00:00:00.000Z'")
				return err
			})
	})
}

// answerExpires has an answer expire behind the lock of a request.
func answerExpires(t *testing.T, driver, url string, dialect schema.Dialect,
	expireNow func(ctx context.Context, db *sql.DB, tx *sql.Tx) error) {
	t.Helper()
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), dialect.SQL(nil, schema.Idempotency)); err != nil {
		t.Fatal(err)
	}
	expire := false
	store := idemsql.New("idemsql", idemsql.Driver[*sql.Tx]{
		Transactor: sqlstore.New(db, dialect, nil),
		Run: func(ctx context.Context, tx *sql.Tx, steps ...idemsql.Step) error {
			if !expire {
				return idemsql.RunSQL(ctx, tx, steps...)
			}
			expire = false
			if err := idemsql.RunSQL(ctx, tx, steps[0]); err != nil {
				return err
			}
			if err := expireNow(ctx, db, tx); err != nil {
				return err
			}
			return idemsql.RunSQL(ctx, tx, steps[1:]...)
		},
		Ask: idemsql.AskSQL(db),
	}, dialect, idemsql.Config{Timeout: time.Minute})
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
