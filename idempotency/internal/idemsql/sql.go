package idemsql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/einmal-go/einmal/schema"
)

// RunSQL is Driver.Run for database/sql: one statement after the other.
func RunSQL(ctx context.Context, tx *sql.Tx, steps ...Step) error {
	for _, step := range steps {
		if step.Skip != nil && step.Skip() {
			continue
		}
		if step.Dest == nil {
			if _, err := tx.ExecContext(ctx, step.SQL, step.Args...); err != nil {
				return err
			}
			continue
		}
		err := tx.QueryRowContext(ctx, step.SQL, step.Args...).Scan(step.Dest...)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		*step.Found = err == nil
	}
	return nil
}

// AskSQL is Driver.Ask for database/sql.
func AskSQL(db *sql.DB) schema.Query {
	return func(ctx context.Context, text string, args ...any) (answer string, err error) {
		err = db.QueryRowContext(ctx, text, args...).Scan(&answer)
		return answer, err
	}
}
