package pgxoutbox

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/outbox"
)

// Writer writes events in transactions of pgx. It is safe for concurrent use.
type Writer struct{ writer *outbox.Writer }

// NewWriter returns a Writer. A nil cfg is all defaults.
func NewWriter(cfg *outbox.WriterConfig) *Writer { return &Writer{outbox.NewWriter(cfg)} }

// Write writes the events by one statement of tx: they are sent if, and only if, tx is committed. Without events it
// does nothing. An event that could not be sent is refused with an error that wraps outbox.ErrInvalidEvent before
// anything is written, so that the transaction can still be used.
func (w *Writer) Write(ctx context.Context, tx pgx.Tx, events ...outbox.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := w.writer.Locate(ctx, func(ctx context.Context, sql string, args ...any) (answer string, err error) {
		err = tx.QueryRow(ctx, sql, args...).Scan(&answer)
		return answer, err
	}); err != nil {
		return err
	}
	sql, args, err := w.writer.Statement(ctx, events, outbox.NativeArrays)
	if err != nil {
		return err
	}
	tag, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		return err
	}
	return w.writer.Written(tag.RowsAffected(), events)
}
