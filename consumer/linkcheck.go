package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// checkLinks asks the links of all chains whether they will work. An answer that asks for a delay is asked again: a
// database that starts beside the service.
func (s *starter) checkLinks(ctx context.Context) error {
	found := make([][]error, len(s.names))
	var wg sync.WaitGroup
	for i, name := range s.names {
		wg.Go(func() { found[i] = s.checkUntil(ctx, s.topics[name]) }) // none uses up the time of the others
	}
	wg.Wait()
	return saidOnce(s.names, found)
}

// saidOnce joins the errors that were found in the topics' chains, each behind the names of its topics: many chains
// share a store, and what its table lacks is a page of SQL.
func saidOnce(names []string, found [][]error) error {
	var texts []string // in the order of the topics
	errs, topics := map[string]error{}, map[string][]string{}
	for i, name := range names {
		for _, err := range found[i] {
			text := err.Error()
			if errs[text] == nil {
				texts, errs[text] = append(texts, text), err
			}
			if quoted := strconv.Quote(name); !slices.Contains(topics[text], quoted) { // a store may stand in several branches
				topics[text] = append(topics[text], quoted)
			}
		}
	}
	joined := make([]error, len(texts))
	for i, text := range texts {
		subject := "topic"
		if len(topics[text]) > 1 {
			subject = "topics"
		}
		joined[i] = fmt.Errorf("%s %s: %w", subject, strings.Join(topics[text], ", "), errs[text])
	}
	return errors.Join(joined...)
}

// checkUntil asks again as long as all that is wrong asks for a delay. What waiting does not cure is returned at once.
func (s *starter) checkUntil(ctx context.Context, t *topic) []error {
	what := fmt.Sprintf("the chain of topic %q", t.name)
	var before []error
	for {
		errs := t.check(ctx)
		if before != nil && cutShort(ctx, errs) {
			return before // the end of ctx tells less than the answer before it
		}
		before = errs
		delay := startRetry // at least, or a link that asks for none makes a hot loop
		for _, err := range errs {
			d, again := Delay(err)
			if !again {
				s.waits.over(what)
				s.incurable()
				return errs
			}
			delay = max(delay, d)
		}
		if len(errs) == 0 {
			s.waits.over(what)
			return nil
		}
		s.waits.noteUntil(ctx, what, errors.Join(errs...))
		if !pause(ctx, delay) {
			return errs
		}
	}
}

// cutShort reports whether the end of ctx is why errs are.
func cutShort(ctx context.Context, errs []error) bool {
	return ctx.Err() != nil && slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, ctx.Err()) })
}
