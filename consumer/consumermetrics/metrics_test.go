package consumermetrics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/internal/meter"
)

// collected is what one collection says of a Status: "name topic[partition] value".
func collected(t *testing.T, s consumer.Status, now time.Time, perPartition bool) (points []string) {
	t.Helper()
	reader := sdkmetric.NewManualReader()
	m := meter.New(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)), scope)
	in := newInstruments(m, s.Group, perPartition)
	stop, err := m.Observe(func(o metric.Observer) { in.observe(o, s, now) })
	if err != nil {
		t.Fatal(err)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	for _, in := range all.ScopeMetrics[0].Metrics {
		name := strings.TrimPrefix(in.Name, "einmal.consumer.")
		switch data := in.Data.(type) {
		case metricdata.Gauge[int64]:
			points = append(points, of(name, data.DataPoints)...)
		case metricdata.Gauge[float64]:
			points = append(points, of(name, data.DataPoints)...)
		case metricdata.Sum[int64]:
			points = append(points, of(name, data.DataPoints)...)
		case metricdata.Sum[float64]:
			points = append(points, of(name, data.DataPoints)...)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	all = metricdata.ResourceMetrics{}
	if err := reader.Collect(context.Background(), &all); err != nil || len(all.ScopeMetrics) > 0 {
		t.Errorf("after its end %v, %v", all.ScopeMetrics, err)
	}
	return points
}

func of[N int64 | float64](name string, data []metricdata.DataPoint[N]) (points []string) {
	for _, p := range data {
		topic, _ := p.Attributes.Value("messaging.destination.name")
		partition, ok := p.Attributes.Value("messaging.destination.partition.id")
		at := topic.AsString()
		if ok {
			at += "[" + partition.AsString() + "]"
		}
		points = append(points, fmt.Sprintf("%s %s %v", name, at, p.Value))
	}
	return points
}

// The partitions of a topic are added up, or the largest is taken; a topic of which nothing is held says 0.
func TestTopicsAreAddedUp(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	s := consumer.Status{
		Group: "g", NotReady: "starting",
		Partitions: []consumer.PartitionStatus{
			{Topic: "a", Partition: 0, Lag: 10, End: 50, Committed: 40, Uncommitted: ago(4 * time.Second), Held: 4, Bytes: 100,
				Running: 1, Parked: 2, Ahead: 7, Paused: true, Oldest: 3, OldestSince: ago(5 * time.Second),
				Failing: &consumer.Failing{Since: ago(3 * time.Second)}},
			{Topic: "a", Partition: 1, Lag: -1, End: -1, Committed: -1, Uncommitted: ago(7 * time.Second), Held: 1, Bytes: 10, Running: 1,
				Ahead: 9, Oldest: 0, OldestSince: ago(time.Second), FetchError: errors.New("no leader")},
			{Topic: "c", Partition: 0, End: 31, Committed: 30, Oldest: -1},
			{Topic: "c", Partition: 1, End: 13, Committed: 12, Oldest: -1},
			{Topic: "a", Partition: 2, Lag: 5, Committed: 2, Oldest: -1},
		},
		Totals: consumer.Totals{Rebalances: 3, ShortSessions: 2, Topics: []consumer.TopicTotals{
			{Topic: "a", Assigned: 4, Drained: 1, DrainTime: 2 * time.Second, DrainsCut: 1, OutOfRange: 1,
				Paused: 1500 * time.Millisecond}, {Topic: "b"}, {Topic: "c"},
		}},
	}
	added := collected(t, s, now, false)
	for _, want := range []string{
		"ready  0", "rebalances  3", "short_sessions  2", "assigned a 4", "drains a 1", "drain.time a 2", "drains.cut a 1",
		"out_of_range a 1", "paused.time a 1.5",
		"partitions a 3", "unreadable a 1", "paused a 1", "held a 5", "held.size a 110", "in_flight a 2", "parked a 2",
		"frontier.gap a 9",
		"oldest.age a 5", "uncommitted.age a 7", "uncommitted.age b 0", "committed c 42", "end c 44", "failing.age a 3", "partitions b 0",
		"lag b 0", "oldest.age b 0",
	} {
		if !slices.Contains(added, want) {
			t.Errorf("no %q", want)
		}
	}
	apart := collected(t, s, now, true)
	for _, want := range []string{"lag a[0] 10", "lag a[2] 5", "end a[0] 50", "committed a[0] 40", "committed a[2] 2",
		"uncommitted.age a[0] 4", "frontier.gap a[0] 7", "frontier.gap a[1] 9", "failing.age a[0] 3", "drains a 1"} {
		if !slices.Contains(apart, want) {
			t.Errorf("no %q with PerPartition", want)
		}
	}
	for _, p := range slices.Concat(added, apart) {
		if strings.HasPrefix(p, "committed a ") || strings.HasPrefix(p, "committed a[1] ") ||
			strings.HasPrefix(p, "committed b") || strings.HasPrefix(p, "end a ") || strings.HasPrefix(p, "end a[1] ") ||
			strings.HasPrefix(p, "end b") {
			t.Errorf("%q, though the offset of a partition is not known", p)
		}
		if strings.HasPrefix(p, "lag a ") || strings.HasPrefix(p, "lag a[1] ") {
			t.Errorf("%q, though the lag of a partition is not known", p)
		}
	}
	if t.Failed() {
		t.Logf("%s\n\n%s", strings.Join(added, "\n"), strings.Join(apart, "\n"))
	}
}
