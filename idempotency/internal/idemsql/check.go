package idemsql

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/schema"
)

// Check implements dedupstore.Checker: it looks at the table, and stores an answer of its own in a transaction that it
// rolls back.
func (s *Store[Tx]) Check(ctx context.Context) error {
	if err := s.reachable(ctx); err != nil {
		return err
	}
	if err := s.locate(ctx); err != nil {
		return err
	}
	if err := s.examine(ctx); err != nil {
		return err
	}
	req := idempotency.Request{Key: "einmal " + rand.Text(), Keep: time.Minute}
	err := s.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if _, err := s.open(ctx, tx, &req); err != nil {
			return err
		}
		if err := s.save(ctx, tx, &req, &idempotency.Answer{Status: 200, DropWrites: true}); err != nil {
			return err
		}
		return errProbed
	})
	switch {
	case errors.Is(err, errUnsaved):
		return s.unsaved(ctx, &req)
	case !errors.Is(err, errProbed):
		return err
	}
	if s.driver.Check == nil {
		return nil
	}
	return s.driver.Check(ctx)
}

// reachable reports what is wrong with the configuration, and a database that does not answer.
func (s *Store[Tx]) reachable(ctx context.Context) error {
	return s.InTx(ctx, func(context.Context, Tx) error { return nil })
}

// examine reports what makes the table unfit, with what to run.
func (s *Store[Tx]) examine(ctx context.Context) error {
	in := &schema.Config{Schema: s.cfg.Schema, Tables: map[string]string{DefaultTable: s.cfg.Table}}
	found, err := s.dialect.Check(ctx, s.driver.Ask, in, schema.Idempotency)
	if err != nil {
		return dedupstore.WithClass(dedupstore.Unavailable, fmt.Errorf("%s: %w", s.name, err))
	}
	var problems []string
	for _, f := range found {
		if f.Level == schema.LevelError {
			problems = append(problems, f.String())
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return dedupstore.WithClass(dedupstore.Misconfigured,
		fmt.Errorf("%s: the table %s cannot be used: %s", s.name, tableSQL(s.cfg.Schema, s.cfg.Table),
			strings.ReplaceAll(strings.Join(problems, "; "), ";; ", "; ")))
}
