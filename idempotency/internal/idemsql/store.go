package idemsql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/internal/sqlclass"
	"github.com/einmal-go/einmal/internal/sqlstate"
	"github.com/einmal-go/einmal/internal/sqltable"
	"github.com/einmal-go/einmal/schema"
)

// DefaultTable is the table's name in the files of package schema.
const DefaultTable = "idempotency_key"

// Driver is what a driver and its dedup store do.
type Driver[Tx any] struct {
	dedupstore.Transactor[Tx]

	// Run runs statements in a transaction.
	Run func(ctx context.Context, tx Tx, steps ...Step) error

	// Ask runs a query outside of any transaction.
	Ask schema.Query

	// Check looks for what would do harm, if it is not nil.
	Check func(ctx context.Context) error
}

// Config is where the table is, and how long an own statement may take.
type Config struct {
	Schema  string
	Table   string
	Timeout time.Duration // positive
}

// Store is the store. It is safe for concurrent use.
type Store[Tx any] struct {
	dedupstore.Transactor[Tx]
	driver Driver[Tx]

	name    string // begins each error
	cfg     Config
	dialect schema.Dialect

	place sqltable.Place          // of the table, unless Config.Schema says it
	texts atomic.Pointer[dialect] // for the table where it is
}

// sql has the texts.
func (s *Store[Tx]) sql() *dialect { return s.texts.Load() }

// locate finds the table once: what a handler leaves in its session changes nothing then. An error of the table's is
// left to Check and to the statements.
func (s *Store[Tx]) locate(ctx context.Context) error {
	if s.dialect == schema.SQLite || s.cfg.Schema != "" || s.sql().located {
		return nil
	}
	in, err := s.place.Find(ctx, sqltable.Query(s.driver.Ask), s.cfg.Table)
	switch {
	case errors.Is(err, sqltable.ErrNoUsage):
		return dedupstore.WithClass(dedupstore.Misconfigured, fmt.Errorf("%s: %w", s.name, err))
	case errors.Is(err, sqltable.ErrNotFound):
		return nil
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%s: look for the table: %w (%w)", s.name, ctx.Err(), err)
	case err != nil:
		return dedupstore.WithClass(max(sqlclass.Of(err), dedupstore.Unavailable),
			fmt.Errorf("%s: look for the table: %w", s.name, err))
	}
	texts := dialectOf(s.dialect, sqltable.Name(in, s.cfg.Table))
	texts.located = true
	s.texts.Store(texts)
	return nil
}

// New returns the store of that name. What is wrong with the configuration is the error of the driver's InTx.
func New[Tx any](name string, driver Driver[Tx], in schema.Dialect, cfg Config) *Store[Tx] {
	cfg.Table = cmp.Or(cfg.Table, DefaultTable)
	place := cfg.Schema
	if in == schema.SQLite {
		place = "main" // a temporary table would come before one that does not say it
	}
	s := &Store[Tx]{Transactor: driver.Transactor, driver: driver, name: name, cfg: cfg, dialect: in}
	s.texts.Store(dialectOf(in, tableSQL(place, cfg.Table)))
	return s
}

// Once implements idempotency.Store.
func (s *Store[Tx]) Once(ctx context.Context, req idempotency.Request,
	fn func(ctx context.Context, tx Tx) (idempotency.Answer, error)) (answer idempotency.Answer, replayed bool,
	err error) {
	if err := req.Validate(); err != nil {
		return answer, false, fmt.Errorf("%s: %w", s.name, err)
	}
	if err := s.locate(ctx); err != nil {
		return answer, false, err
	}
	err = s.InTx(ctx, func(ctx context.Context, tx Tx) error {
		stored, err := s.open(ctx, tx, &req)
		switch {
		case err != nil:
			return err
		case stored != nil:
			answer, replayed = *stored, true
			return nil
		}
		if answer, err = fn(ctx, tx); err != nil || ctx.Err() != nil { // of the latter InTx makes an error
			return err
		}
		return s.save(ctx, tx, &req, &answer)
	})
	if errors.Is(err, errUnsaved) {
		err = s.unsaved(ctx, &req)
	}
	if err != nil {
		return idempotency.Answer{}, false, err
	}
	return answer, replayed, nil
}

// open finds the answer, or makes this transaction the one that runs the request.
func (s *Store[Tx]) open(ctx context.Context, tx Tx, req *idempotency.Request) (*idempotency.Answer, error) {
	stored, got, err := s.find(ctx, tx, req)
	if err == nil && stored == nil && got == lockNone { // the answer has expired between the two statements
		stored, got, err = s.find(ctx, tx, req)
	}
	switch {
	case err != nil:
		return nil, err
	case stored != nil:
		return stored.answer(s.name, req)
	case got == lockOther:
		return nil, fmt.Errorf("%s: %w", s.name, idempotency.ErrOtherRequest)
	case got != lockTaken:
		return nil, fmt.Errorf("%s: %w", s.name, idempotency.ErrInProgress)
	}
	return nil, s.room(ctx, tx, req)
}

// find takes the lock, unless there is an answer, and returns that.
func (s *Store[Tx]) find(ctx context.Context, tx Tx, req *idempotency.Request) (*row, lock, error) {
	var (
		locking, found bool
		stored         row
		got            = sql.Null[lock]{V: lockTaken} // on SQLite, whose first statement has the only place to write
	)
	locks := Step{SQL: s.sql().lock, Args: s.sql().args(req)}
	if s.dialect != schema.SQLite {
		locks.Dest, locks.Found = []any{&got}, &locking
	}
	err := s.run(ctx, tx, "find the key", locks,
		Step{SQL: s.sql().find, Args: []any{req.Scope, req.Key}, Dest: stored.dest(), Found: &found},
		Step{SQL: savepointSQL, Skip: func() bool { return found || got.V != lockTaken }},
	)
	switch {
	case err != nil:
		return nil, lockNone, err
	case found:
		return &stored, lockNone, nil
	case locking && !got.Valid:
		return nil, lockNone, nil
	}
	return nil, got.V, nil
}

// CountsKeys implements idempotency.KeyCounter.
func (s *Store[Tx]) CountsKeys() {}

// room reports whether the scope may have another key.
func (s *Store[Tx]) room(ctx context.Context, tx Tx, req *idempotency.Request) error {
	if req.MaxKeys <= 0 {
		return nil
	}
	var full, counted bool
	err := s.run(ctx, tx, "count the keys", Step{SQL: s.sql().full, Args: []any{req.Scope, int64(req.MaxKeys)},
		Dest: []any{&full}, Found: &counted})
	if err == nil && full {
		err = fmt.Errorf("%s: %w", s.name, idempotency.ErrTooManyKeys)
	}
	return err
}

// save stores the answer.
func (s *Store[Tx]) save(ctx context.Context, tx Tx, req *idempotency.Request, a *idempotency.Answer) error {
	if a.DropWrites { // alone: drivers that prepare what they send do so before it is run, which fails if a statement of the function has failed
		if err := s.run(ctx, tx, "roll back", Step{SQL: rollbackSQL}); err != nil {
			return err
		}
	}
	var saved, same bool
	err := s.run(ctx, tx, "store the answer", Step{SQL: releaseSQL}, Step{ // fails behind a COMMIT or ROLLBACK of the function's
		SQL: s.sql().save,
		Args: []any{
			req.Scope, req.Key, req.Fingerprint[:], a.Status, encodeHeader(a.Header), append([]byte{}, a.Body...),
			s.sql().keep(req.Keep),
		},
		Dest: []any{&same}, Found: &saved,
	})
	switch {
	case sqlstate.Of(err) == sqlstate.FailedTransaction:
		return fmt.Errorf("%s: rolled back: a statement failed, and the handler answered as if it had not: return the errors of all statements, or set a savepoint before one that may fail: %w", s.name, err)
	case err != nil:
		return err
	case !saved || !same:
		return errUnsaved
	}
	return nil
}

// errUnsaved rolls back a request whose answer was not stored.
var errUnsaved = errors.New("the answer was not stored")

// unsaved explains it, after the transaction has ended: nobody is in progress unless there is an answer, of somebody
// who has got past the lock.
func (s *Store[Tx]) unsaved(ctx context.Context, req *idempotency.Request) error {
	ctx, stop := context.WithTimeout(ctx, s.cfg.Timeout)
	defer stop()
	there, err := s.driver.Ask(ctx, s.sql().look, req.Scope, req.Key)
	switch {
	case err != nil:
		return dedupstore.WithClass(max(sqlclass.Of(err), dedupstore.Unavailable),
			fmt.Errorf("%s: rolled back: look for the answer of another one: %w", s.name, err))
	case there == "true":
		return fmt.Errorf("%s: rolled back: another one has stored an answer: %w", s.name, idempotency.ErrInProgress)
	}
	return dedupstore.WithClass(dedupstore.Misconfigured,
		fmt.Errorf("%s: rolled back: the answer was stored, and is not in %s: a trigger swallows or changes what is written: remove it", s.name, tableSQL(s.cfg.Schema, s.cfg.Table)))
}

// run bounds the time of our own statements, which wait for nobody but a migration.
func (s *Store[Tx]) run(ctx context.Context, tx Tx, what string, steps ...Step) error {
	limited, stop := context.WithTimeout(ctx, s.cfg.Timeout)
	defer stop()
	err := s.driver.Run(limited, tx, steps...)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %s: %w (%w)", s.name, what, ctx.Err(), err)
	case limited.Err() != nil:
		err = fmt.Errorf("%s: %s: no answer within CommitTimeout (%v): the server does not answer, or the table is locked, by a migration perhaps: %w", s.name, what, s.cfg.Timeout, err)
		return dedupstore.WithClass(dedupstore.Unavailable, err)
	case savepointIsGone(err):
		return fmt.Errorf("%s: %s: %w: %w", s.name, what, dedupstore.ErrTxEnded, err)
	case strings.HasPrefix(sqlstate.Of(err), "42"), strings.Contains(err.Error(), "no such table"):
		err = fmt.Errorf("%s: %s: the table %s cannot be used; Check says what to run: %w", s.name, what,
			tableSQL(s.cfg.Schema, s.cfg.Table), err)
		return dedupstore.WithClass(dedupstore.Misconfigured, err)
	}
	return fmt.Errorf("%s: %s: %w", s.name, what, err)
}

// savepointIsGone reports whether the transaction in which the savepoint was set has ended.
func savepointIsGone(err error) bool {
	state := sqlstate.Of(err)
	return state == "25P01" || state == "3B001" || strings.Contains(err.Error(), "no such savepoint")
}

// row is a stored answer.
type row struct {
	fingerprint, header, body []byte
	status                    int
	unused                    int64
}

func (r *row) dest() []any { return []any{&r.fingerprint, &r.status, &r.header, &r.body, &r.unused} }

func (r *row) answer(store string, req *idempotency.Request) (*idempotency.Answer, error) {
	if string(r.fingerprint) != string(req.Fingerprint[:]) {
		return nil, fmt.Errorf("%s: %w", store, idempotency.ErrOtherRequest)
	}
	header, err := decodeHeader(r.header)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", store, err)
	}
	return &idempotency.Answer{Status: r.status, Header: header, Body: r.body}, nil
}

// errProbed rolls the probe back.
var errProbed = errors.New("rolled back on purpose")
