package console

import (
	"context"
	"fmt"
	"time"
)

// oneQuestion has a table asked one question at a time, so that looking through it takes one connection.
type oneQuestion chan struct{}

func newOneQuestion() oneQuestion { return make(oneQuestion, 1) }

// ask calls f, which has until the time-out, together with the wait for the questions of others. what names the table.
func (q oneQuestion) ask(ctx context.Context, timeout time.Duration, what string,
	f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case q <- struct{}{}:
		defer func() { <-q }()
	case <-ctx.Done():
		return fmt.Errorf("%s is being looked through by others: try again in a moment", what)
	}
	return f(ctx)
}

// named returns the one of the list that has the name, or the only one if no name is given.
func named[T any](list []T, name string, of func(T) string) (found T, ok bool) {
	for _, one := range list {
		if of(one) == name || name == "" && len(list) == 1 {
			return one, true
		}
	}
	return found, false
}
