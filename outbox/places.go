package outbox

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/einmal-go/einmal/outbox/internal/outboxsql"
	"github.com/einmal-go/einmal/schema"
)

// places are where an operator's tables are: what is left or made in a session later changes nothing.
type places struct {
	config *schema.Config
	bare   outboxsql.Tables // as the configuration has them
	found  atomic.Pointer[outboxsql.Tables]
}

func newPlaces(cfg *schema.Config) *places {
	return &places{config: cfg, bare: outboxsql.NewTables(cfg)}
}

// find looks for the tables until all are found.
func (p *places) find(ctx context.Context, tx Tx) error {
	if p.found.Load() != nil {
		return nil
	}
	names, all, err := outboxsql.Find(ctx, tx.Query, p.config)
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	if all {
		p.found.CompareAndSwap(nil, &names) // one answer for all
	}
	return nil
}

func (p *places) names() outboxsql.Tables {
	if found := p.found.Load(); found != nil {
		return *found
	}
	return p.bare
}

// In puts the names into a statement.
func (p *places) In(sql string) string { return p.names().In(sql) }

// inTx runs f in a transaction when it is known where the tables are.
func (o *Operator) inTx(ctx context.Context, f func(ctx context.Context, tx Tx) error) error {
	return o.db.InTx(ctx, func(ctx context.Context, tx Tx) error {
		if err := o.tables.find(ctx, tx); err != nil {
			return err
		}
		return f(ctx, tx)
	})
}
