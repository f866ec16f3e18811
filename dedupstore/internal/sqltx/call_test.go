package sqltx

import (
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
)

// Rows that are left open are the function's fault, and a connection that ends is not, whatever its end is called.
func TestLeftOpen(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err  error
		open bool
	}{
		{errors.New("conn busy"), true}, // pgx
		{errors.New("pgdriver: readParseDescribeSync: unexpected message 'D'"), true},
		{errors.New("pq: unexpected Parse response 'D'"), true},
		{fmt.Errorf("failed to receive message: %w", io.ErrUnexpectedEOF), false}, // pgx
		{fmt.Errorf("unexpected end: %w", io.EOF), false},
		{&net.OpError{Op: "remote error", Err: errors.New("tls: unexpected message")}, false},
		{errors.New("conn closed"), false},
	} {
		if open := leftOpen(test.err); open != test.open {
			t.Errorf("%q: %v", test.err, open)
		}
	}
}
