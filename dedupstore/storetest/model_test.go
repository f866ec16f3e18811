package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// flaw is a mistake that a store can make. "" is none.
type flaw string

// modelDB is a database in memory.
type modelDB struct {
	mu       sync.Mutex
	recorded map[dedupstore.Key]bool
	holders  map[dedupstore.Key]*modelTx
	effects  map[string]int
	waiting  int
}

// model is a store that keeps every promise, except for its flaw.
type model struct {
	*modelDB
	flaw    flaw
	idle    time.Duration // how long a holder may hang; 0 is for ever
	wait    time.Duration // how long to wait for a holder; 0 is for ever
	cut     atomic.Int32  // the Moment at which the next commit is cut
	commits atomic.Int64
	hasty   bool // every third commit misses its deadline
}

type modelTx struct {
	store    *model
	key      dedupstore.Key
	since    time.Time
	effects  []string
	spoiled  bool
	lost     bool
	ended    bool
	takenOff bool // by a successor
}

func (f flaw) harness() Harness[*modelTx] {
	db := &modelDB{recorded: map[dedupstore.Key]bool{}, holders: map[dedupstore.Key]*modelTx{}, effects: map[string]int{}}
	store := func() *model { return &model{modelDB: db, flaw: f} }
	impatient, hasty, brief := store(), store(), store()
	impatient.idle, hasty.hasty, brief.wait = 50*time.Millisecond, true, 50*time.Millisecond
	return Harness[*modelTx]{
		Store: store(),
		Write: func(_ context.Context, tx *modelTx, effect string) error { return tx.write(effect) },
		Effects: func(_ context.Context, effect string) (int, error) {
			db.mu.Lock()
			defer db.mu.Unlock()
			return db.effects[effect], nil
		},
		Other: store(),
		Waiting: func(context.Context) (int, error) {
			db.mu.Lock()
			defer db.mu.Unlock()
			return db.waiting, nil
		},
		Spoil: map[string]func(context.Context, *modelTx) error{"fails": func(_ context.Context, tx *modelTx) error {
			tx.spoiled = true
			return errors.New("failed")
		}},
		End: map[string]func(context.Context, *modelTx) error{"ends": func(_ context.Context, tx *modelTx) error {
			tx.ended = true
			return dedupstore.ErrTxEnded
		}},
		Cut: func(_ testing.TB, at Moment) dedupstore.Store[*modelTx] {
			s := store()
			s.cut.Store(int32(at))
			return s
		},
		Lose: func(_ context.Context, tx *modelTx) error {
			tx.lost = true
			return errors.New("lost")
		},
		Impatient: impatient,
		Brief:     brief,
		Hasty:     hasty,
	}
}

func (s *model) Check(context.Context) error {
	if s.flaw == "Check fails" {
		return errors.New("something is missing")
	}
	return nil
}

func (tx *modelTx) write(effect string) error {
	if tx.store.flaw == "effects are seen early" {
		tx.store.mu.Lock()
		defer tx.store.mu.Unlock()
		tx.store.effects[effect]++
		return nil
	}
	tx.effects = append(tx.effects, effect)
	return nil
}

func (s *model) Once(ctx context.Context, key dedupstore.Key, fn func(context.Context, *modelTx) error) (ran bool,
	err error) {
	if err := key.Validate(); err != nil && s.flaw != "takes invalid keys" {
		return false, err
	}
	key = s.fold(key)
	tx, recorded, err := s.begin(ctx, key)
	if err != nil || recorded && s.flaw != "runs duplicates" {
		return recorded && s.flaw == "says ran for duplicates", err
	}
	defer func() { s.leave(tx, recover()) }()
	fnCtx := ctx
	if s.flaw == "the function has another context" {
		fnCtx = context.Background()
	}
	err = fn(fnCtx, tx)
	if s.flaw == "the error repeats the id" && err != nil {
		err = fmt.Errorf("%s: %w", key.Event, err)
	}
	err = s.verdict(ctx, tx, err)
	switch {
	case err == nil:
		return s.commit(tx)
	case s.flaw == "commits on error":
		_, _ = s.commit(tx)
	case s.flaw == "hides the error":
		return false, nil
	}
	return false, err
}

// fold is what careless columns do to keys.
func (s *model) fold(k dedupstore.Key) dedupstore.Key {
	switch s.flaw {
	case "forgets the consumer":
		k.Consumer = "all"
	case "folds case":
		k.Event = strings.ToLower(k.Event)
	case "drops trailing blanks":
		k.Event = strings.TrimRight(k.Event, " ")
	case "cuts ids off":
		k.Event = k.Event[:min(len(k.Event), 255)]
	case "composes letters":
		k.Event = strings.ReplaceAll(k.Event, "a\u0308", "\u00e4")
	}
	return k
}

// begin waits until key is free, and holds it.
func (s *model) begin(ctx context.Context, key dedupstore.Key) (tx *modelTx, recorded bool, err error) {
	tx = &modelTx{store: s, key: key, since: time.Now()}
	for waits := false; ; waits = true {
		if ctx.Err() != nil {
			s.giveUp(waits)
			if s.flaw == "the class of a wait is missing" {
				return nil, false, context.Cause(ctx)
			}
			return nil, false, dedupstore.WithClass(dedupstore.Unavailable, context.Cause(ctx))
		}
		if s.wait > 0 && time.Since(tx.since) > s.wait {
			s.giveUp(waits)
			return nil, false, cmp.Or(map[flaw]error{"ErrLocked is missing": errors.New("busy")}[s.flaw], dedupstore.ErrLocked)
		}
		if done, recorded, err := s.tryBegin(tx, waits); done {
			return tx, recorded, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

func (s *model) giveUp(waits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waits {
		s.waiting--
	}
}

func (s *model) tryBegin(tx *modelTx, waits bool) (done, recorded bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	holder := s.holders[tx.key]
	switch {
	case s.recorded[tx.key], holder != nil && s.flaw == "skips without waiting":
		recorded = true
	case holder == nil, s.flaw == "records apart, after the function":
		s.holders[tx.key] = tx
		s.recorded[tx.key] = s.flaw == "records apart, before the function"
	case holder != nil && s.flaw == "fails without waiting":
		err = errors.New("busy")
	case holder.store.idle > 0 && time.Since(holder.since) > holder.store.idle &&
		s.flaw != "a frozen owner blocks for ever":
		holder.takenOff = true
		s.holders[tx.key] = tx
	default:
		if !waits {
			s.waiting++
		}
		return false, false, nil
	}
	if waits {
		s.waiting--
	}
	return true, recorded, err
}

// verdict says why tx must not be committed.
func (s *model) verdict(ctx context.Context, tx *modelTx, err error) error {
	switch {
	case tx.ended && s.flaw == "ErrTxEnded is missing":
		return errors.New("ended")
	case tx.ended && s.flaw != "commits what was ended":
		return errors.Join(dedupstore.ErrTxEnded, err)
	case tx.lost && s.flaw != "the class of a lost connection is missing":
		return cmp.Or(dedupstore.WithClass(dedupstore.Unavailable, err), dedupstore.ErrUnavailable)
	case err != nil && !tx.ended:
		return err
	case tx.lost:
		return errors.New("lost")
	case ctx.Err() != nil && s.flaw == "the cause is missing":
		return errors.New("context done")
	case ctx.Err() != nil && s.flaw != "commits although the context is done":
		return fmt.Errorf("%w: %w", ctx.Err(), context.Cause(ctx))
	case tx.spoiled && s.flaw != "swallows a failure":
		return errors.New("spoiled")
	case tx.takenOff && s.flaw != "a frozen owner commits":
		return errors.New("taken off")
	}
	return nil
}

// leave ends the hold, and lets a panic go on.
func (s *model) leave(tx *modelTx, panicked any) {
	s.mu.Lock()
	if panicked != nil && s.flaw == "commits on panic" {
		s.apply(tx)
	}
	if s.holders[tx.key] == tx {
		delete(s.holders, tx.key)
	}
	s.mu.Unlock()
	if panicked != nil && s.flaw != "swallows a panic" {
		panic(panicked)
	}
}

// apply makes the effects seen, once.
func (s *model) apply(tx *modelTx) {
	s.recorded[tx.key] = true
	for _, effect := range tx.effects {
		s.effects[effect]++
	}
	tx.effects = nil
}

func (s *model) commit(tx *modelTx) (ran bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := Moment(s.cut.Swap(0))
	missed := s.hasty && s.commits.Add(1)%3 == 0
	effects := tx.effects
	if at != BeforeCommit {
		s.apply(tx)
	}
	tx.effects = nil
	switch {
	case missed && s.flaw == "a missed deadline loses the record":
		delete(s.recorded, tx.key)
		return false, dedupstore.ErrOutcomeUnknown
	case at == 0 && !missed, s.flaw == "an unknown outcome is a success":
		return true, nil
	case at == AfterCommit && s.flaw == "an unknown outcome is tried again":
		for _, effect := range effects {
			s.effects[effect]++
		}
		return false, dedupstore.ErrOutcomeUnknown
	}
	return false, cmp.Or(map[flaw]error{"ErrOutcomeUnknown is missing": errors.New("lost")}[s.flaw],
		dedupstore.ErrOutcomeUnknown)
}
