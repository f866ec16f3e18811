package pgxdeadletter

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/deadletter/internal/deadsql"
	"github.com/einmal-go/einmal/schema"
)

// Config holds what is optional. A nil Config, or a zero field, is the default.
type Config struct {
	// Schema is the schema of the tables, as it is spelled in the catalogue, without quotes. By default the search_path
	// finds them.
	Schema string

	// Table is the name of the table of dead letters. Defaults to dead_message.
	Table string

	// StartedTable is the name of the table in which Starts counts. Defaults to started_message.
	StartedTable string

	// RecordTable is the name of the table of the dedup store, which Starts looks into. Defaults to processed_event.
	RecordTable string

	// MaxBytes is how large a message may be, key and headers included. A larger one is not written: the message stays, is
	// tried again, and holds up what is ordered behind it, until MaxBytes is raised or LeaveOut set. Defaults to 32 MiB:
	// well above what brokers take unless told otherwise (1 MiB), well below what PostgreSQL can hold in a row, and no
	// burden for the memory of a process that writes several.
	MaxBytes int64

	// LeaveOut writes a message that is larger than MaxBytes without its value and headers: where it stood, its key and
	// why it is there are kept, the bytes are in Kafka for as long as the topic keeps them. It cannot be redriven from the
	// table.
	LeaveOut bool
}

// Table is a table of dead letters: a deadletter.Table, safe for concurrent use.
type Table struct{ *deadsql.Table[pgx.Tx] }

var _ deadletter.Table[pgx.Tx] = (*Table)(nil)

// New returns a Table in the database of pool, which stays the caller's to close. It does no input or output. What is
// wrong with its arguments is the error of Check, and of every other call.
func New(pool *pgxpool.Pool, cfg *Config) *Table {
	if cfg == nil {
		cfg = &Config{}
	}
	var invalid error
	if pool == nil {
		invalid = errors.New("the pool is nil: make one with pgxpool.New")
	}
	in := func(tx pgx.Tx) deadsql.Conn { return conn{tx} }
	return &Table{deadsql.New("pgxdeadletter", schema.Postgres, deadsql.Config(*cfg), conn{pool}, in, invalid)}
}

// conn is a pool or a transaction.
type conn struct{ session }

type session interface {
	Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, text string, args ...any) (pgx.Rows, error)
	Begin(ctx context.Context) (pgx.Tx, error)
}

func (c conn) Exec(ctx context.Context, text string, args ...any) (int64, error) {
	tag, err := c.session.Exec(ctx, text, args...)
	return tag.RowsAffected(), err
}

// Begin implements deadsql.Beginner.
func (c conn) Begin(ctx context.Context) (tx deadsql.Conn, end func() error, err error) {
	begun, err := c.session.Begin(ctx)
	if err != nil {
		return nil, nil, err
	}
	end = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return begun.Rollback(ctx)
	}
	return conn{begun}, end, nil
}

// Shed implements deadsql.Shedder, for a pool. A pooler closes its own connection to the server in a transaction alone.
func (c conn) Shed(ctx context.Context) {
	pool, ok := c.session.(*pgxpool.Pool)
	if !ok {
		return
	}
	last, err := pool.Acquire(ctx)
	if err != nil {
		return
	}
	defer last.Release()
	_, _ = last.Exec(ctx, "begin")
	_ = last.Conn().Close(ctx)
}

func (c conn) Query(ctx context.Context, text string, args ...any) (deadsql.Rows, error) {
	r, err := c.session.Query(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	return rows{r}, nil
}

type rows struct{ pgx.Rows }

func (r rows) Close() error {
	r.Rows.Close()
	return nil
}
