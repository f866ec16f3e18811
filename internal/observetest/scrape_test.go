package observetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// scrape is what Prometheus would see: the value of each series.
type scrape map[string]sample

type sample struct {
	value   float64
	counter bool
}

func (w *world) scrape() scrape {
	w.Helper()
	w.seen.add(w.instruments()) // a gauge may be 0 again at the end
	families, err := w.registry.Gather()
	w.must(err)
	s := scrape{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			name := f.GetName() + "{" + strings.Join(labels, ",") + "}"
			switch {
			case m.GetCounter() != nil:
				s[name] = sample{m.GetCounter().GetValue(), true}
			case m.GetHistogram() != nil:
				for _, bucket := range m.GetHistogram().GetBucket() {
					s[f.GetName()+"_bucket{"+strings.Join(append(labels, fmt.Sprintf("le=\"%v\"", bucket.GetUpperBound())), ",")+
						"}"] = sample{float64(bucket.GetCumulativeCount()), true}
				}
				s[f.GetName()+"_bucket{"+strings.Join(append(labels, `le="+Inf"`), ",")+
					"}"] = sample{float64(m.GetHistogram().GetSampleCount()), true}
			case m.GetGauge() != nil:
				s[name] = sample{m.GetGauge().GetValue(), false}
			}
		}
	}
	return s
}

// sum adds the series of a name whose labels contain all of these texts.
func (s scrape) sum(name string, labels ...string) (total float64) {
	for series, v := range s {
		if strings.HasPrefix(series, name+"{") &&
			!slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(series, l) }) {
			total += v.value
		}
	}
	return total
}

// has reports whether there is a series of that name.
func (s scrape) has(name string) bool {
	for series := range s {
		if strings.HasPrefix(series, name+"{") {
			return true
		}
	}
	return false
}

// moved is what the SDK has collected of an instrument: whether a value was not 0, and the names of its attributes.
type moved struct {
	notZero bool
	keys    map[string]bool
}

// instruments are those that have data, by name.
func (w *world) instruments() map[string]*moved {
	w.Helper()
	var all metricdata.ResourceMetrics
	w.must(w.reader.Collect(context.Background(), &all))
	found := map[string]*moved{}
	for _, scope := range all.ScopeMetrics {
		for _, in := range scope.Metrics {
			m := &moved{keys: map[string]bool{}}
			found[in.Name] = m
			switch data := in.Data.(type) {
			case metricdata.Sum[int64]:
				points(m, data.DataPoints)
			case metricdata.Sum[float64]:
				points(m, data.DataPoints)
			case metricdata.Gauge[int64]:
				points(m, data.DataPoints)
			case metricdata.Gauge[float64]:
				points(m, data.DataPoints)
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					m.add(p.Count > 0, p.Attributes)
				}
			default:
				w.Fatalf("%s is a %T", in.Name, data)
			}
		}
	}
	return found
}

func points[N int64 | float64](m *moved, list []metricdata.DataPoint[N]) {
	for _, p := range list {
		m.add(p.Value != 0, p.Attributes)
	}
}

func (m *moved) add(notZero bool, set attribute.Set) {
	m.notZero = m.notZero || notZero
	for _, kv := range set.ToSlice() {
		m.keys[string(kv.Key)] = true
	}
}

func (m *moved) join(other *moved) {
	m.notZero = m.notZero || other.notZero
	maps.Copy(m.keys, other.keys)
}
