package outboxtest_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/einmal-go/einmal/outbox"
)

// step is a point in the life of a batch.
type step string

const (
	atBegin        step = "before BEGIN"
	atLocked       step = "buckets locked"
	atFetched      step = "rows fetched"
	atUnsent       step = "produce request not sent"
	atSent         step = "produce request sent"
	atAnswered     step = "produce request answered"
	atBeforeDelete step = "before DELETE"
	atDeleted      step = "deleted, COMMIT not sent"
	atDeleteSent   step = "COMMIT of the deletion sent"
	atDeleteDone   step = "COMMIT of the deletion answered"
	atLeased       step = "buckets leased"
	atTakenBack    step = "taken back"
	atClaimed      step = "claimed, COMMIT not sent"
	atClaimSent    step = "COMMIT of the claim sent"
	atClaimDone    step = "COMMIT of the claim answered"
	atBeforeMark   step = "before the mark"
	atMarked       step = "marked, COMMIT not sent"
	atMarkSent     step = "COMMIT of the mark sent"
	atMarkDone     step = "COMMIT of the mark answered"
	nowhere        step = ""
)

// steps are those of each mode, in their order.
var steps = map[outbox.Mode][]step{
	outbox.SinglePhase: {atBegin, atLocked, atFetched, atUnsent, atSent, atAnswered, atBeforeDelete, atDeleted,
		atDeleteSent, atDeleteDone},
	outbox.TwoPhase: {
		atBegin, atLocked, atLeased, atTakenBack, atClaimed, atClaimSent, atClaimDone, atUnsent, atSent, atAnswered,
		atBeforeMark, atMarked, atMarkSent, atMarkDone,
	},
}

// striker kills its process when a batch is at a step. It stands in the Database and in the connections: nothing of the
// code under test is changed.
type striker struct {
	step   step
	commit atomic.Pointer[step] // what a COMMIT that is sent now is
}

func (s *striker) at(now step) {
	if s.step == now && now != nowhere {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

// database is an outbox.Database with a striker in it.
type database struct {
	outbox.Database
	*striker
}

func (d *database) InTx(ctx context.Context, f func(ctx context.Context, tx outbox.Tx) error) error {
	t := &tx{striker: d.striker}
	err := d.Database.InTx(ctx, func(ctx context.Context, inner outbox.Tx) error {
		t.Tx = inner
		err := f(ctx, t)
		if err == nil && t.unsent != nowhere {
			d.at(t.unsent)
			d.commit.Store(&t.sent)
		}
		return err
	})
	d.commit.Store(nil)
	if err == nil {
		d.at(t.done)
	}
	return err
}

// tx knows a transaction by its statements.
type tx struct {
	outbox.Tx
	*striker
	unsent, sent, done step // of its COMMIT
}

func (t *tx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	switch {
	case !strings.Contains(sql, "delete from") || !strings.Contains(sql, "any($1"):
	case strings.Contains(sql, "claim_epoch"):
		t.at(atBeforeMark)
		t.unsent, t.sent, t.done = atMarked, atMarkSent, atMarkDone
	default:
		t.at(atBeforeDelete)
		t.unsent, t.sent, t.done = atDeleted, atDeleteSent, atDeleteDone
	}
	n, err := t.Tx.Exec(ctx, sql, args...)
	if strings.Contains(sql, "o.claims >=") {
		t.at(atTakenBack)
	}
	return n, err
}

func (t *tx) Query(ctx context.Context, sql string, args []any, row func(scan func(dest ...any) error) error) error {
	if strings.Contains(sql, "pg_try_advisory_xact_lock(hashoid($2") {
		t.at(atBegin)
	}
	err := t.Tx.Query(ctx, sql, args, row)
	switch {
	case strings.Contains(sql, "pg_try_advisory_xact_lock(hashoid($2"):
		t.at(atLocked)
	case strings.Contains(sql, "epoch = l.epoch + 1"):
		t.at(atLeased)
	case strings.Contains(sql, "claims = o.claims + 1"):
		t.unsent, t.sent, t.done = atClaimed, atClaimSent, atClaimDone
	case strings.HasPrefix(sql, "select o.id, o.ctid") && strings.Contains(sql, "skip locked"):
		t.at(atFetched)
	}
	return err
}

// Dial implements sarama's proxy.Dialer.
func (s *striker) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	if err != nil {
		return nil, err
	}
	return &kafkaConn{Conn: conn, striker: s}, nil
}

// kafkaConn knows produce requests by the number of their API, 0.
type kafkaConn struct {
	net.Conn
	*striker
	produced atomic.Bool
}

func (c *kafkaConn) Write(b []byte) (int, error) {
	produce := len(b) > 6 && b[4] == 0 && b[5] == 0
	if produce {
		c.at(atUnsent)
	}
	n, err := c.Conn.Write(b)
	if produce {
		c.produced.Store(true)
		c.at(atSent)
	}
	return n, err
}

func (c *kafkaConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.produced.Load() {
		c.at(atAnswered)
	}
	return n, err
}

func (s *striker) dialPostgres(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &postgresConn{conn, s}, nil
}

type postgresConn struct {
	net.Conn
	*striker
}

func (c *postgresConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if what := c.commit.Load(); what != nil && bytes.Contains(b, []byte("commit")) {
		c.at(*what)
	}
	return n, err
}
