package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// checkLinks asks the links of all chains whether they will work. An answer that asks for a delay is asked again: a database that
// starts beside the service.
func (c *Consumer) checkLinks(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(c.topics))
	found := make([][]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() { found[i] = checkUntil(ctx, c.topics[name]) }) // none uses up the time of the others
	}
	wg.Wait()
	return saidOnce(names, found)
}

// saidOnce joins the errors that were found in the topics' chains, each behind the names of its topics: many chains share a store, and
// what its table lacks is a page of SQL.
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
func checkUntil(ctx context.Context, t *topic) []error {
	for {
		errs := t.check(ctx)
		delay := startRetry // at least, or a link that asks for none makes a hot loop
		for _, err := range errs {
			d, again := Delay(err)
			if !again {
				return errs
			}
			delay = max(delay, d)
		}
		if len(errs) == 0 || !pause(ctx, delay) {
			return errs
		}
	}
}
