package consumer

import (
	"context"
	"strings"
	"testing"
	"time"
)

const day = 24 * time.Hour

// kafkaDefaults are those of Kafka 4.
func kafkaDefaults() (topic, broker retention) {
	return retention{
			"cleanup.policy": "delete", "retention.ms": "604800000", "segment.ms": "604800000",
			"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": "3600000",
		},
		retention{"offsets.retention.minutes": "10080", "log.retention.check.interval.ms": "300000"}
}

func TestShortWindow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		window time.Duration
		set    map[string]string // "-" for not told
		start  Start
		says   []string // none for no warning
		not    string
	}{
		"long enough": {window: 14*day + 5*time.Minute},
		"short by a little": {window: 14 * day, says: []string{
			"older than the window, 336h,", "retention.ms 168h + segment.ms 168h + log.retention.check.interval.ms 5m = 336h5m",
			"offsets.retention.minutes 168h without a member, then all of the topic comes again)", "at least 336h5m",
		}, not: "Even after an outage"},
		"shorter than an outage": {window: day, says: []string{"= 336h5m", "Even after an outage of between 24h and 168h",
			"were never handled"}},
		"from newest": {window: 8 * day, start: FromNewest(), says: []string{"offsets.retention.minutes 168h"},
			not: "comes again"},
		"offsets not told": {window: 8 * day, set: map[string]string{"offsets.retention.minutes": "-"},
			says: []string{"offsets.retention.minutes is not known", "= 336h5m"}},
		"interval not told": {window: 8 * day, set: map[string]string{"log.retention.check.interval.ms": "-"},
			says: []string{"log.retention.check.interval.ms 5m = 336h5m"}},
		"interval": {window: 15 * day, set: map[string]string{"log.retention.check.interval.ms": "86400000"}},
		"offsets for ever": {window: 8 * day,
			set: map[string]string{"offsets.retention.minutes": "9223372036854775807"}, says: []string{"offsets are reset."}},
		"small segments": {window: 8 * day, set: map[string]string{"segment.ms": "3600000"}},
		"for ever": {window: 900 * day, set: map[string]string{"retention.ms": "-1"},
			says: []string{"retention.ms is -1", "kept for ever", "leave DedupConfig.Window unset"}},
		"longest": {window: 900 * day, set: map[string]string{"retention.ms": "9223372036854775807"},
			says: []string{"kept for ever"}},
		"segments for ever": {window: 900 * day, set: map[string]string{"segment.ms": "9223372036854775807"},
			says: []string{"segment.ms is 9223372036854775807"}},
		"the sum overflows": {window: 900 * day, set: map[string]string{"retention.ms": "9000000000000",
			"segment.ms": "9000000000000"}, says: []string{"segment.ms is 9000000000000"}},
		"compacted": {window: 900 * day, set: map[string]string{"cleanup.policy": "compact"},
			says: []string{"cleanup.policy is compact", "for ever"}},
		"compacted, not longer": {window: 15 * day, set: map[string]string{"cleanup.policy": "compact,delete"}},
		"for ever, short": {window: day, set: map[string]string{"retention.ms": "-1"},
			says: []string{"Even after an outage of between 24h and 168h"}},
		"nothing told": {window: day, set: map[string]string{"retention.ms": "-"}},
	} {
		topic, broker := kafkaDefaults()
		for key, value := range c.set {
			for _, r := range []retention{topic, broker} {
				if _, ok := r[key]; ok {
					r[key] = value
				}
			}
		}
		text := shortWindow(c.window, topic, broker, c.start)
		if (text == "") != (len(c.says) == 0) {
			t.Errorf("%s: %q", name, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q does not say %q", name, text, want)
			}
		}
		if c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%s: %q says %q", name, text, c.not)
		}
	}
}

func TestRunsAhead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		typ, ahead string
		says       string
	}{
		"default":       {"CreateTime", "3600000", ""},
		"more":          {"CreateTime", "3600001", "by up to 1h0m0.001s"},
		"no limit":      {"CreateTime", "9223372036854775807", "without a limit"},
		"broker's time": {"LogAppendTime", "9223372036854775807", ""},
		"not told":      {"CreateTime", "", ""},
	} {
		text := runsAhead(retention{"message.timestamp.type": c.typ, "message.timestamp.after.max.ms": c.ahead})
		if (text == "") != (c.says == "") || !strings.Contains(text, c.says) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

type windowed struct {
	HandlerFunc
	window   time.Duration
	branches [][]Handler
}

func (w windowed) Window() time.Duration { return w.window }
func (w windowed) Branches() [][]Handler { return w.branches }

// The shortest window of all links counts, those of branches among them; 0 is none.
func TestWindowOfATopic(t *testing.T) {
	t.Parallel()
	f := func(context.Context, *Message) error { return nil }
	for name, c := range map[string]struct {
		h    Handler
		want time.Duration
	}{
		"none":     {HandlerFunc(f), 0},
		"unset":    {windowed{f, 0, nil}, 0},
		"set":      {windowed{f, day, nil}, day},
		"branches": {windowed{f, 0, [][]Handler{{windowed{f, 2 * day, nil}}, {HandlerFunc(f), windowed{f, day, nil}}}}, day},
	} {
		tp, err := newTopic(Config{Group: "g", Topics: map[string]Topic{"t": {Handler: c.h}}}, "t")
		if err != nil {
			t.Fatal(err)
		}
		if got := tp.window(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
