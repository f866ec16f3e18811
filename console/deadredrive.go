package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/einmal-go/einmal/deadletter"
)

// redriveLetters has dead letters handled again.
var redriveLetters = deed{
	verb: "dead.redrive", title: "Redrive dead letters", button: "Redrive them",
	prepare: func(ctx context.Context, c *Console, args url.Values) (*plan, error) {
		ch, s, err := c.chooseToRedrive(ctx, args)
		if err != nil {
			return nil, err
		}
		says := s.says(ch.Name)
		says = append(says, ch.held(ctx, c)...)
		says = append(says, ch.order(ctx, c), ch.becomes(), endsWithProcess)
		return &plan{
			Target: ch.target(), Says: says, Back: ch.back(args),
			Fields: []field{{Name: "per_second", Label: "At most so many a second", Value: cmp.Or(args.Get("per_second"), "10"),
				Hint: "What has failed together is likely to fall upon the same service again."}},
		}, nil
	},
	do: func(ctx context.Context, c *Console, args url.Values, e *Entry) (outcome, error) {
		ch, s, err := c.chooseToRedrive(ctx, args)
		if err != nil {
			return outcome{}, err
		}
		rate, err := rateOf(args)
		if err != nil {
			return outcome{}, err
		}
		j := ch.job("Redrive dead letters", args, e, s)
		j.do = func(ctx context.Context, tell func(func(*progress))) error { return ch.redrive(ctx, rate, tell) }
		return c.begins(j)
	},
}

// becomes says what becomes of each.
func (ch *chosenLetters) becomes() string {
	if ch.Publishes {
		return "Each is written to the outbox, for the topic where it stood, those of a partition in the order in which they stood there: a relay sends it, and its consumer handles it behind all that have come since. One that cannot be published stays, with the reason."
	}
	return "Each is handled again, those of a partition in the order in which they stood there; one that fails stays, with its error."
}

// rateOf reads how many a second are begun.
func rateOf(args url.Values) (float64, error) {
	rate, err := strconv.ParseFloat(cmp.Or(strings.TrimSpace(args.Get("per_second")), "10"), 64)
	if err != nil || rate <= 0 || rate > 1e6 {
		return 0, wrongArg("%q is no number of messages a second: write 10, for example.", args.Get("per_second"))
	}
	return rate, nil
}

// chooseToRedrive is choose for what can be redriven.
func (c *Console) chooseToRedrive(ctx context.Context, args url.Values) (*chosenLetters, *survey, error) {
	ch, err := c.choose(ctx, args)
	if err != nil {
		return nil, nil, err
	}
	if ch.Redrive == nil {
		return nil, nil, &refusal{http.StatusConflict, "This console cannot redrive.",
			"Its configuration has no DeadLetters.Redrive for this table: use the console of the service, or einmal dead redrive. Nothing was done."}
	}
	s, err := ch.look(ctx, c)
	switch {
	case err != nil:
		return nil, nil, err
	case len(ch.search.IDs) == 0 && ch.search.Consumer == "" && !ch.Publishes:
		return nil, nil, &refusal{http.StatusBadRequest, "Name a consumer.",
			"A redrive is done by the handler of one consumer: search for its dead letters, or choose a group. Nothing was done."}
	case !ch.search.Plain() && s.more:
		return nil, nil, &refusal{http.StatusBadRequest, fmt.Sprintf("This search finds more than %d.", maxNamed),
			"Narrow it, or redrive a whole group. Nothing was done."}
	}
	return ch, s, nil
}

// held says how many are not redriven because of their kind.
func (ch *chosenLetters) held(ctx context.Context, c *Console) []string {
	var says []string
	for _, kind := range deadletter.Kinds() {
		if !ch.search.Holds(kind) || ch.search.Kind != "" {
			continue
		}
		of := ch.search
		of.Kind = kind
		var n int64
		var more bool
		err := ch.ask(ctx, c, func(ctx context.Context, b deadletter.Browser) (err error) {
			n, more, err = b.CountUpTo(ctx, of, maxCounted)
			return err
		})
		switch {
		case err != nil:
			says = append(says, fmt.Sprintf("Those of the kind %s are held; how many could not be told.", kind))
		case n > 0:
			says = append(says, fmt.Sprintf("%s of the kind %s are held, for their effect may be there already, or they may end the process: they are only redriven by their kind or one by one.", atLeast(n, more), kind))
		}
	}
	return says
}

// maxOvertaken is up to which dead letters are counted that would overtake others.
const maxOvertaken = 1_000

// order says whether the order of a key would change.
func (ch *chosenLetters) order(ctx context.Context, c *Console) string {
	var n int64
	var more bool
	err := ch.ask(ctx, c, func(ctx context.Context, b deadletter.Browser) (err error) {
		n, more, err = b.Overtaken(ctx, ch.search, maxOvertaken)
		return err
	})
	switch {
	case errors.Is(err, deadletter.ErrTooLong):
		return "Whether some would overtake earlier ones of their key could not be told in time, they are too many: redrive those of a key or of a window of time, if the order matters."
	case err != nil:
		return "Whether some would overtake earlier ones of their key could not be told: " + shownError(err) + "."
	case n == 0:
		return "None overtakes an earlier dead letter of its key."
	}
	return fmt.Sprintf("The order of keys changes: %s %s would overtake earlier dead letters of their keys, which are not chosen or are held. Choose those too, if the order matters.", atLeast(n, more), plural(n, "dead letter"))
}

// redrive redrives them, one consumer after the other.
func (ch *chosenLetters) redrive(ctx context.Context, rate float64, tell func(func(*progress))) error {
	filters, err := ch.filters(ctx)
	if err != nil {
		return err
	}
	for _, filter := range filters {
		report, err := ch.Redrive(ctx, deadletter.RedriveConfig{Filter: filter, PerSecond: rate,
			Each: func(rec *deadletter.Record, err error) {
				tell(func(p *progress) { p.redriven(ch.Name, rec, err) })
			}})
		tell(func(p *progress) { p.Held += int64(report.Held) })
		if err != nil {
			return err
		}
	}
	return nil
}

// redriven counts one.
func (p *progress) redriven(table string, rec *deadletter.Record, err error) {
	p.Looked++
	switch {
	case err == nil:
		p.Changed++
	case errors.Is(err, deadletter.ErrTaken):
		p.Gone++
	default:
		id := strconv.FormatInt(rec.ID, 10)
		p.fails(jobFailure{What: id, Link: address("letter", "table", table, "id", id), Why: deadletter.Text(err, nil)})
	}
}

// filters describe what is chosen, each for one consumer.
func (ch *chosenLetters) filters(ctx context.Context) ([]deadletter.Filter, error) {
	if ch.search.Plain() && len(ch.search.IDs) == 0 {
		return []deadletter.Filter{ch.search.Filter}, nil
	}
	ids := map[string][]int64{}
	for page := (deadletter.Page{OldestFirst: true, Limit: 1000}); ; {
		list, err := ch.page(ctx, &page)
		if err != nil {
			return nil, err
		}
		for _, rec := range list {
			if !ch.search.Holds(rec.Kind) {
				ids[rec.Consumer] = append(ids[rec.Consumer], rec.ID)
			}
		}
		if len(list) == 0 || page.Beyond == 0 {
			break
		}
	}
	var filters []deadletter.Filter
	for _, consumer := range slices.Sorted(maps.Keys(ids)) {
		filters = append(filters, deadletter.Filter{Consumer: consumer, IDs: ids[consumer]})
	}
	return filters, nil
}
