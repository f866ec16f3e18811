package sqltest

import (
	"context"
	"database/sql"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/uptrace/bun/driver/pgdriver"

	"github.com/einmal-go/einmal/dedupstore/internal/faultconn"
)

// Driver is a driver for PostgreSQL, in one of its modes.
type Driver struct {
	Name string
	Open func(t testing.TB, url string, dialer *faultconn.Dialer) *sql.DB // dialer may be nil
}

// Pgx is pgx's driver for database/sql.
func Pgx(mode pgx.QueryExecMode) Driver {
	return Driver{"pgx, " + mode.String(), func(t testing.TB, url string, dialer *faultconn.Dialer) *sql.DB {
		t.Helper()
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		cfg.DefaultQueryExecMode = mode
		if dialer != nil {
			cfg.DialFunc = dialer.DialContext
		}
		return stdlib.OpenDB(*cfg)
	}}
}

// Pgdriver is bun's own driver. It gives COMMIT no deadline but its time-out for reading, which is short here.
var Pgdriver = Driver{"pgdriver", func(_ testing.TB, url string, dialer *faultconn.Dialer) *sql.DB {
	options := []pgdriver.Option{pgdriver.WithDSN(url), pgdriver.WithReadTimeout(15 * time.Second)}
	if dialer != nil {
		options = append(options, pgdriver.WithReadTimeout(3*time.Second), func(cfg *pgdriver.Config) {
			cfg.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, addr)
			}
		})
	}
	return sql.OpenDB(pgdriver.NewConnector(options...))
}}
