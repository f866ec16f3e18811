package gather

import (
	"context"

	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/internal/turn"
)

// state is where a call stands. It is guarded by the Gatherer's mutex.
type state int

const (
	queued  state = iota // it waits for a group
	member               // its group is under way, its function has not begun
	running              // its function runs
	ran                  // its function has returned, or needs not run: the group's end is its answer
	ended                // it has its answer, or it has left
)

// call is one call of Once.
type call[Tx any] struct {
	ctx   context.Context
	key   dedupstore.Key
	fn    func(context.Context, Tx) error
	turn  *turn.Turn // nil if the call may run whenever it comes
	state state

	events  chan event[Tx] // what its goroutine does next; at most one is under way
	results chan error     // of its function
	twins   []*call[Tx]    // calls with the same key, which are duplicates if this one is committed

	waits  *waitingLane[Tx] // its lane, while it is in the queue; nil if it has none
	picked bool             // for the next group
}

// event is what a Gatherer tells a call's goroutine.
type event[Tx any] struct {
	alone bool            // run without a group
	tx    Transaction[Tx] // run the function in it, if not nil
	place int             // in its group
	ran   bool            // else the answer
	err   error
}

func newCall[Tx any](ctx context.Context, key dedupstore.Key, fn func(context.Context, Tx) error) *call[Tx] {
	return &call[Tx]{ctx: ctx, key: key, fn: fn, turn: turn.From(ctx), events: make(chan event[Tx], 1),
		results: make(chan error, 1)}
}

// lane is the order in which the call stands, or nil.
func (c *call[Tx]) lane() *turn.Lane {
	if c.turn == nil {
		return nil
	}
	return c.turn.Lane()
}

// run calls the function on the caller's goroutine and hands its outcome to the group. A function that panics or ends
// its goroutine has failed; what it began goes on when the group has been rolled back.
func (c *call[Tx]) run(tx Transaction[Tx], place int) {
	returned := false
	defer func() {
		if !returned {
			c.results <- errNotReturned
			<-c.events
		}
	}()
	err := tx.Run(c.ctx, place, c.fn)
	returned = true
	c.results <- err
}

func (c *call[Tx]) answer(ran bool, err error) { c.events <- event[Tx]{ran: ran, err: err} }
