// Package bunoutbox writes events to the outbox within transactions of bun. The relay of a service that uses bun takes
// sqloutbox.NewDatabase(db.DB).
//
//	events := bunoutbox.NewWriter(nil)
//	...
//	err := events.Write(ctx, tx, outbox.Event{Topic: "orders.confirmed", Key: []byte(orderID), Value: body})
package bunoutbox

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/sqloutbox"
)

// Writer writes events in transactions of bun. It is safe for concurrent use.
type Writer struct{ writer *sqloutbox.Writer }

// NewWriter returns a Writer. A nil cfg is all defaults.
func NewWriter(cfg *outbox.WriterConfig) *Writer { return &Writer{sqloutbox.NewWriter(cfg)} }

// Write writes the events by one statement of tx: they are sent if, and only if, tx is committed. It takes a bun.Tx
// and no bun.IDB, which could be the database: then an event would be sent whatever becomes of the transaction.
// Without events it does nothing. An event that could not be sent is refused with an error that wraps
// outbox.ErrInvalidEvent before anything is written, so that the transaction can still be used.
//
// The statement goes to the embedded *sql.Tx, so that bun does not write the values into its text.
func (w *Writer) Write(ctx context.Context, tx bun.Tx, events ...outbox.Event) error {
	return w.writer.Write(ctx, tx.Tx, events...)
}
