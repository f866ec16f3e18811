package serverstest

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/einmal-go/einmal/internal/servers"
)

// The variables that make a server a must which tests do without otherwise. Set to 1, its absence is a failure; not
// set, tests that need it are skipped and say why.
const (
	EnvRequirePgbouncer  = "EINMAL_REQUIRE_PGBOUNCER"
	EnvRequirePostgres17 = "EINMAL_REQUIRE_POSTGRES17"
)

// optional is a server that not every machine has, one for a test binary.
type optional struct {
	role, variable string
	find           func(context.Context) (*servers.Database, error)

	once sync.Once
	db   *servers.Database
	err  error
}

var pooler = &optional{role: "pooler", variable: EnvRequirePgbouncer,
	find: func(ctx context.Context) (*servers.Database, error) {
		db, err := shared.get()
		if err != nil {
			return nil, err
		}
		return servers.Pgbouncer(ctx, db)
	}}

// version17 is the shared server if it is one, or another.
var version17 = &optional{role: "postgres17", variable: EnvRequirePostgres17,
	find: func(ctx context.Context) (*servers.Database, error) {
		if db, err := shared.get(); err == nil && strings.HasPrefix(db.Origin, "PostgreSQL 17") {
			return &servers.Database{URL: db.URL, Origin: db.Origin}, nil // not to be closed twice
		}
		return servers.FetchedPostgres(ctx)
	}}

// need answers with the server, or skips the test.
func (o *optional) need(t testing.TB) *servers.Database {
	t.Helper()
	o.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), searchTimeout)
		defer cancel()
		if o.db, o.err = o.find(ctx); o.err == nil {
			announce(o.role, o.db.Origin)
		}
	})
	switch {
	case o.err == nil:
	case os.Getenv(o.variable) == "1":
		t.Fatalf("%s=1 demands it: %v", o.variable, o.err)
	default:
		t.Skip(o.err)
	}
	return o.db
}

func (o *optional) close() error {
	if o.db == nil {
		return nil
	}
	return o.db.Close()
}

// PoolerURL answers with the URL of a pgbouncer in transaction mode in front of the database of DatabaseURL. It takes
// no search_path: name the schema of that in the statements. The test is skipped where pgbouncer is not installed,
// unless EINMAL_REQUIRE_PGBOUNCER is 1.
func PoolerURL(t testing.TB) string {
	t.Helper()
	return pooler.need(t).URL
}

// DatabaseURL17 is DatabaseURL on PostgreSQL 17. The test is skipped where that cannot be fetched, unless
// EINMAL_REQUIRE_POSTGRES17 is 1.
func DatabaseURL17(t testing.TB) string {
	t.Helper()
	return newSchema(t, version17.need(t))
}
