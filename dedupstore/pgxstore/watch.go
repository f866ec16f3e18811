package pgxstore

import (
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// WatchCommits lets Once see on connections with cfg that a COMMIT is on the primary only: an administrator has
// cancelled its wait for a synchronous replica by pg_cancel_backend. The server says so in a warning and answers that
// all is well; a failover would lose what has been acknowledged. Once returns an error that wraps
// dedupstore.ErrOutcomeUnknown instead, and the redelivery waits for the replica.
//
// Call it before the pool is made, on pgxpool.Config.ConnConfig, if the database has synchronous replicas. It wraps
// cfg.OnNotice, which is still called.
func WatchCommits(cfg *pgx.ConnConfig) {
	next := cfg.OnNotice
	cfg.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if notice.Routine == "SyncRepWaitForLSN" { // the text is translated, and the warning has no SQLSTATE of its own
			conn.CustomData()[unreplicated] = true
		}
		if next != nil {
			next(conn, notice)
		}
	}
}

// unreplicated is the key of a connection's CustomData under which the warning is kept.
const unreplicated = "github.com/einmal-go/einmal/dedupstore/pgxstore unreplicated"

var errUnreplicated = errors.New("the server committed, and its wait for a synchronous replica was cancelled: a failover may lose it")

// watched returns the warning that came with a COMMIT.
func watched(conn *pgx.Conn) error {
	data := conn.PgConn().CustomData()
	if data[unreplicated] == nil {
		return nil
	}
	delete(data, unreplicated)
	return errUnreplicated
}
