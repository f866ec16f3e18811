package sqlaudit_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/console/sqlaudit"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

func open(t *testing.T, dialect schema.Dialect) *sql.DB {
	t.Helper()
	driver, url := "sqlite", "file:"+t.TempDir()+"/db"
	if dialect == schema.Postgres {
		driver, url = "pgx", serverstest.DatabaseURL(t)
	}
	db, err := sql.Open(driver, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Each action is a row, before it is done and when it has ended.
func TestAudit(t *testing.T) {
	t.Parallel()
	for _, dialect := range []schema.Dialect{schema.Postgres, schema.SQLite} {
		for name, cfg := range map[string]*sqlaudit.Config{"console_action": nil,
			"our \"100%\" deeds": {Table: "our \"100%\" deeds"}} {
			t.Run(string(dialect)+" "+name, func(t *testing.T) {
				t.Parallel()
				db := open(t, dialect)
				if _, err := db.ExecContext(t.Context(),
					dialect.SQL(&schema.Config{Tables: map[string]string{"console_action": name}}, schema.Console)); err != nil {
					t.Fatal(err)
				}
				audit := sqlaudit.New(db, dialect, cfg)
				id, err := audit.Begin(t.Context(), console.Entry{Who: "ann", Action: "dead.discard",
					Target: "it's $1 ?1 %s \x00\xff", Reason: "no use"})
				if err != nil {
					t.Fatal(err)
				}
				row := func() (text string) {
					err := db.QueryRowContext(t.Context(),
						`select done_by || '|' || action || '|' || target || '|' || reason || '|' || coalesce(changed, -1) || '|' || error || '|' || (ended_at is null) || (begun_at is null) from `+
							`"`+strings.ReplaceAll(name, `"`, `""`)+`"`).Scan(&text)
					if err != nil {
						t.Fatal(err)
					}
					return strings.NewReplacer("true", "1", "false", "0").Replace(text)
				}
				if got, want := row(), "ann|dead.discard|it's $1 ?1 %s \uFFFD\uFFFD|no use|-1||10"; got != want {
					t.Errorf("before: %s, want %s", got, want)
				}
				if err := audit.End(t.Context(), id, 7, "stopped"); err != nil {
					t.Fatal(err)
				}
				if got, want := row(), "ann|dead.discard|it's $1 ?1 %s \uFFFD\uFFFD|no use|7|stopped|00"; got != want {
					t.Errorf("after: %s, want %s", got, want)
				}
				if err := audit.End(t.Context(), id+1, 0, ""); err == nil || !strings.Contains(err.Error(), "is gone") {
					t.Errorf("the end of a row that is not there: %v", err)
				}
			})
		}
	}
}

// A table that is missing is an error that says what to run.
func TestNoTable(t *testing.T) {
	t.Parallel()
	for _, dialect := range []schema.Dialect{schema.Postgres, schema.SQLite} {
		_, err := sqlaudit.New(open(t, dialect), dialect, nil).Begin(t.Context(), console.Entry{Who: "ann", Action: "pause"})
		if err == nil || !strings.Contains(err.Error(), "einmal schema print -db "+string(dialect)+" console") {
			t.Errorf("%s: %v", dialect, err)
		}
	}
	if _, err := sqlaudit.New(open(t, schema.SQLite), "oracle", nil).Begin(t.Context(), console.Entry{}); err == nil ||
		!strings.Contains(err.Error(), "oracle") {
		t.Errorf("%v", err)
	}
}

// What people do by a console is kept in a table of the service's database.
func Example() {
	operators := func(db *sql.DB) (*console.Console, error) {
		return console.New(console.Config{Audit: sqlaudit.New(db, schema.Postgres, nil)})
	}
	_ = operators
	_, err := sqlaudit.New(nil, schema.Postgres, nil).Begin(context.Background(), console.Entry{})
	fmt.Println(err)
	// Output: sqlaudit: the database is nil: open one with sql.Open
}
