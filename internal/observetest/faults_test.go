package observetest

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"

	"github.com/IBM/sarama"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/outbox"
)

// cutCommits makes the pool one whose connections are cut right after COMMIT was sent, as often as the counter says.
func (w *world) cutCommits() *atomic.Int64 {
	w.Helper()
	left := &atomic.Int64{}
	cfg, err := pgxpool.ParseConfig(w.url)
	w.must(err)
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &cutting{conn, left}, err
	}
	w.pool, err = pgxpool.NewWithConfig(context.Background(), cfg)
	w.must(err)
	w.Cleanup(w.pool.Close)
	return left
}

type cutting struct {
	net.Conn

	left *atomic.Int64
}

func (c *cutting) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if bytes.Contains(bytes.ToLower(p), []byte("commit\x00")) && c.left.Add(-1) >= 0 {
		_ = c.Conn.Close()
	}
	return n, err
}

// losing is a database in which a successor takes the rows back while the relay that sent them is about to mark them.
type losing struct {
	outbox.Database

	w     *world
	armed atomic.Bool
}

// InTx implements outbox.Database.
func (l *losing) InTx(ctx context.Context, f func(context.Context, outbox.Tx) error) error {
	return l.Database.InTx(ctx, func(ctx context.Context, tx outbox.Tx) error { return f(ctx, &losingTx{tx, l}) })
}

type losingTx struct {
	outbox.Tx

	l *losing
}

// Query implements outbox.Tx.
func (t *losingTx) Query(ctx context.Context, sql string, args []any, each func(func(...any) error) error) error {
	t.l.lose(sql)
	return t.Tx.Query(ctx, sql, args, each)
}

// Exec implements outbox.Tx.
func (t *losingTx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	t.l.lose(sql)
	return t.Tx.Exec(ctx, sql, args...)
}

func (l *losing) lose(sql string) {
	if strings.HasPrefix(sql, "delete from") && strings.Contains(sql, "claim_epoch") &&
		l.armed.CompareAndSwap(true, false) {
		l.w.exec("update outbox_lease set epoch = epoch + 1, owner = 'successor', leased_until = clock_timestamp() + interval '20 seconds'")
		l.w.exec("update outbox_event set claim_epoch = claim_epoch + 1, claims = claims + 1, claimed_until = clock_timestamp() + interval '20 seconds'")
	}
}

// commit sets the group's offset, as another member would.
func (w *world) commit(offset int64) {
	w.Helper()
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	client, err := sarama.NewClient(w.b.Addrs, cfg)
	w.must(err)
	defer client.Close()
	offsets, err := sarama.NewOffsetManagerFromClient(w.group, client)
	w.must(err)
	defer offsets.Close()
	partition, err := offsets.ManagePartition(w.topic, 0)
	w.must(err)
	partition.MarkOffset(offset, "")
	offsets.Commit()
	partition.AsyncClose()
}
