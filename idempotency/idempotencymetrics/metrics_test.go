package idempotencymetrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/idempotencymetrics"
)

// Requests are counted by method, route and outcome; those that have not been are there as 0; what clients make up is
// no attribute.
func TestOnAnswer(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	onAnswer, err := idempotencymetrics.OnAnswer(&idempotencymetrics.Config{MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		method, pattern string
		outcome         idempotency.Outcome
	}{
		{"POST", "POST /orders/{id}/pay", idempotency.OutcomeFirst},
		{"POST", "POST /orders/{id}/pay", idempotency.OutcomeReplayed},
		{"POST", "POST /orders/{id}/pay", idempotency.OutcomeReplayed},
		{"PUT", "pay.example.com/orders/", idempotency.OutcomeUnavailable},
		{"S3CRET", "", idempotency.OutcomeRefused},
	} {
		req := httptest.NewRequest(r.method, "/orders/s3cret/pay?s3cret", http.NoBody)
		req.Pattern = r.pattern
		req.Header.Set("Idempotency-Key", `"s3cret"`)
		onAnswer(req, r.outcome)
	}
	var all metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	var counted []string
	zeros := 0
	for _, p := range all.ScopeMetrics[0].Metrics[0].Data.(metricdata.Sum[int64]).DataPoints {
		if p.Value == 0 {
			zeros++
			continue
		}
		var attrs []string
		for _, kv := range p.Attributes.ToSlice() {
			attrs = append(attrs, string(kv.Key)+"="+kv.Value.AsString())
		}
		counted = append(counted, fmt.Sprint(p.Value, attrs))
	}
	slices.Sort(counted)
	if want := []string{
		"1 [einmal.idempotency.outcome=first http.request.method=POST http.route=/orders/{id}/pay]",
		"1 [einmal.idempotency.outcome=refused http.request.method=_OTHER]",
		"1 [einmal.idempotency.outcome=unavailable http.request.method=PUT http.route=/orders/]",
		"2 [einmal.idempotency.outcome=replayed http.request.method=POST http.route=/orders/{id}/pay]",
	}; !slices.Equal(counted, want) {
		t.Errorf("counted\n%q, want\n%q", counted, want)
	}
	if want := 3*len(idempotency.Outcomes()) - len(counted); zeros != want {
		t.Errorf("%d series are 0, want %d", zeros, want)
	}
}
