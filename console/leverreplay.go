package console

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/einmal-go/einmal/consumer"
)

// replayWindow replays a window of a topic. Its dry run is what is shown before.
var replayWindow = deed{
	verb: "replay", title: "Replay a window", button: "Replay it",
	prepare: func(ctx context.Context, c *Console, args url.Values) (*plan, error) {
		p, rc, err := c.replayOf(args)
		if err != nil {
			return nil, err
		}
		says, _, err := p.dryRun(ctx, rc)
		if err != nil {
			return nil, err
		}
		target := p.target() + ", " + windowText(rc)
		return &plan{
			Target: target, Says: append(says,
				"What has had its effect is a duplicate and has none again; the others take effect now, after all that have come since.", endsWithProcess), Back: "levers",
			Fields: []field{{Name: "per_second", Label: "At most so many a second", Value: cmp.Or(args.Get("per_second"), "100"),
				Hint: "The handlers' database serves the running service too."}},
		}, nil
	},
	do: func(ctx context.Context, c *Console, args url.Values, e *Entry) (outcome, error) {
		p, rc, err := c.replayOf(args)
		if err != nil {
			return outcome{}, err
		}
		_, total, err := p.dryRun(ctx, rc)
		if err != nil {
			return outcome{}, err
		}
		j := &job{Title: "Replay " + p.topic, Entry: *e, Back: "levers", on: "replay of " + p.Name,
			now: progress{Total: total}}
		j.do = func(ctx context.Context, tell func(func(*progress))) error { return p.replay(ctx, rc, tell) }
		return c.begins(j)
	},
}

// replayOf reads what is to be replayed. A time that is told by how long ago it was is kept in args as it is now.
func (c *Console) replayOf(args url.Values) (*placeArgs, consumer.ReplayConfig, error) {
	var rc consumer.ReplayConfig
	p, err := c.placeOf(args)
	if err != nil {
		return nil, rc, err
	}
	if p.Replay == nil {
		return nil, rc, &refusal{http.StatusConflict, "This console cannot replay.",
			"Its configuration has no Consumer.Replay. Nothing was done."}
	}
	now := time.Now()
	rc.Topic, rc.All = p.topic, args.Get("all") != ""
	if rc.From, err = momentOf(args.Get("from"), now); err != nil {
		return nil, rc, err
	}
	if rc.To, err = momentOf(args.Get("to"), now); err != nil {
		return nil, rc, err
	}
	switch {
	case rc.From.IsZero() && rc.To.IsZero() && !rc.All:
		return nil, rc, wrongArg("Name a window: from when, until when, or all of the topic.")
	case !rc.From.IsZero() && !rc.To.IsZero() && !rc.From.Before(rc.To):
		return nil, rc, wrongArg("The window ends before it begins.")
	}
	for name, at := range map[string]time.Time{"from": rc.From, "to": rc.To} {
		if !at.IsZero() {
			args.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	if args.Has("per_second") {
		if rc.PerSecond, err = rateOf(args); err != nil {
			return nil, rc, err
		}
	}
	return p, rc, nil
}

func windowText(rc consumer.ReplayConfig) string {
	var parts []string
	if !rc.From.IsZero() {
		parts = append(parts, "from "+rc.From.UTC().Format(time.RFC3339))
	}
	if !rc.To.IsZero() {
		parts = append(parts, "to "+rc.To.UTC().Format(time.RFC3339))
	}
	if len(parts) == 0 {
		return "all of it"
	}
	return strings.Join(parts, " ")
}

// dryRun says what would be read.
func (p *placeArgs) dryRun(ctx context.Context, rc consumer.ReplayConfig) (says []string, total int64, err error) {
	rc.DryRun = true
	report, err := p.Replay(ctx, rc)
	if err != nil {
		return nil, 0, leverRefused(err)
	}
	partitions := slices.Sorted(maps.Keys(report.Next))
	for i, partition := range partitions {
		window := report.Next[partition]
		total += window.To - window.From
		const shown = 20
		if i < shown {
			says = append(says, fmt.Sprintf("Partition %d: offsets %d to %d.", partition, window.From, window.To-1))
		} else if i == shown {
			says = append(says, "And further partitions.")
		}
	}
	if total == 0 {
		return nil, 0, &refusal{http.StatusConflict, "There is nothing to replay.",
			"The window has no messages. Nothing was done."}
	}
	first := fmt.Sprintf("At most %d %s in %d %s: offsets that hold none are passed over.", total,
		plural(total, "message"), len(partitions), plural(int64(len(partitions)), "partition"))
	return append([]string{first}, says...), total, nil
}

// replay replays, and tells how far it is.
func (p *placeArgs) replay(ctx context.Context, rc consumer.ReplayConfig, tell func(func(*progress))) error {
	rc.OnFailure = consumer.CountFailures
	show := func(now consumer.ReplayCounts) {
		tell(func(p *progress) {
			if now.Read < p.Looked {
				return // one that was overtaken
			}
			p.Looked, p.Changed, p.Failed = now.Read, now.Processed+now.Dead+now.HandedOn, now.Failed
			p.Also = replaySays(now)
		})
	}
	rc.Progress = show
	report, err := p.Replay(ctx, rc)
	if report != nil {
		show(report.ReplayCounts)
	}
	return err
}

// replaySays are sentences about what the counts have beyond those of a job.
func replaySays(now consumer.ReplayCounts) []string {
	says := []string{fmt.Sprintf("%d took effect now, %d had taken effect before.", now.Processed, now.Duplicates)}
	for _, more := range []struct {
		n    int64
		says string
	}{
		{now.Dead, "%d were written as dead letters."}, {now.HandedOn, "%d were handed on."},
		{now.Skipped, "%d are not for this consumer."},
		{now.Failed, "%d failed; the log says which and why."},
		{now.WithoutID, "%d have no event's id, and were not delivered."},
		{now.TooOld, "%d are older than their records are kept, and were not delivered."},
	} {
		if more.n > 0 {
			says = append(says, fmt.Sprintf(more.says, more.n))
		}
	}
	return says
}
