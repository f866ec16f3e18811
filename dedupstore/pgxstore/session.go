package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/dedupstore/internal/record"
)

// sessionKey is the key of a connection's CustomData under which its session is kept, as it was at its first
// transaction.
const sessionKey = "github.com/einmal-go/einmal/dedupstore/pgxstore session"

// changed closes the connection if its session is not what it was at its first transaction, or if the first statement
// of this one, which err is of, has failed as if it were not. It does so within the transaction: a pooler closes its
// own connection to the server then.
func (s *Store) changed(ctx context.Context, conn *pgx.Conn, now record.Session, err error) bool {
	data := conn.PgConn().CustomData()
	before, known := data[sessionKey].(record.Session)
	switch {
	case err == nil && now == "": // no answer at all
		return false
	case err == nil && !known && s.sessions.AsEver(now, now.Of(conn.PgConn().PID())):
		data[sessionKey] = now
		return false
	case err == nil && known && now.Same(before), err != nil && (!known || !s.sql.OfTheSession(err)):
		return false
	}
	_ = conn.Close(ctx)
	return true
}

// restore brings the settings of the session back to what they were when the transaction began.
func (s *Store) restore(ctx context.Context, tx pgx.Tx, began record.Session) error {
	limited := s.ends.start(context.WithoutCancel(ctx))
	defer s.ends.stop(limited)
	now, err := s.session(limited, tx)
	if err != nil || now.Same(began) {
		return err
	}
	text, args := began.Restore(now)
	var unused string
	return tx.QueryRow(limited, text, args...).Scan(&unused)
}

// session asks for the settings as they are.
func (s *Store) session(ctx context.Context, tx pgx.Tx) (now record.Session, err error) {
	var unused *string
	err = tx.QueryRow(ctx, s.sql.Statements(record.Upsert).Same).Scan(&unused, (*string)(&now))
	return now, err
}

// reportsTx reports whether the connection shows, without being asked, that the transaction is the one that was begun.
// Servers before PostgreSQL 14, and some poolers, do not report the setting that shows it.
func reportsTx(conn *pgx.Conn) bool {
	return conn.PgConn().ParameterStatus(record.ReportedSetting) == record.ReportedValue
}

// ended reports whether the function has ended the transaction, even if it has begun another one. Where the connection
// does not show that, the server is asked, which costs a round trip.
func (s *Store) ended(ctx context.Context, tx pgx.Tx, reported bool) bool {
	conn := tx.Conn()
	status := conn.PgConn().TxStatus()
	if status != 'T' || reported && reportsTx(conn) || conn.IsClosed() || conn.PgConn().IsBusy() {
		return status == 'I'
	}
	limited := s.ends.start(context.WithoutCancel(ctx))
	defer s.ends.stop(limited)
	var mark *string
	var unused string
	err := tx.QueryRow(limited, s.sql.Statements(record.Upsert).Same).Scan(&mark, &unused)
	return err == nil && (mark == nil || *mark == "")
}
