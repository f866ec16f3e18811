package sqloutbox

import (
	"context"
	"database/sql"

	"github.com/einmal-go/einmal/outbox"
)

// Writer writes events in transactions of database/sql. It is safe for concurrent use.
type Writer struct{ writer *outbox.Writer }

// NewWriter returns a Writer. A nil cfg is all defaults.
func NewWriter(cfg *outbox.WriterConfig) *Writer { return &Writer{outbox.NewWriter(cfg)} }

// Write writes the events by one statement of tx: they are sent if, and only if, tx is committed. Without events it
// does nothing. An event that could not be sent is refused with an error that wraps outbox.ErrInvalidEvent before
// anything is written, so that the transaction can still be used.
func (w *Writer) Write(ctx context.Context, tx *sql.Tx, events ...outbox.Event) error {
	if len(events) == 0 {
		return nil
	}
	if err := w.writer.Locate(ctx, func(ctx context.Context, text string, args ...any) (answer string, err error) {
		err = tx.QueryRowContext(ctx, text, args...).Scan(&answer)
		return answer, err
	}); err != nil {
		return err
	}
	text, args, err := w.writer.Statement(ctx, events, outbox.TextArrays)
	if err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx, text, args...)
	if err != nil {
		return err
	}
	rows, err := result.RowsAffected()
	if err != nil {
		return err
	}
	return w.writer.Written(rows, events)
}
