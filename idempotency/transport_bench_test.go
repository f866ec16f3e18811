package idempotency_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/idempotency"
)

// BenchmarkCall is a POST with a key and its answer, by http.Client alone and with a Transport: over a kept connection
// of the loopback, and without a network, which leaves what the Transport itself costs.
func BenchmarkCall(b *testing.B) {
	answer := http.Header{"Content-Type": {"application/json"}}
	memory := roundTripper(func(req *http.Request) (*http.Response, error) {
		_, _ = io.Copy(io.Discard, req.Body)
		_ = req.Body.Close()
		return &http.Response{StatusCode: http.StatusCreated, Header: answer,
			Body: io.NopCloser(strings.NewReader(`{"id":"1"}`)), ContentLength: 10}, nil
	})
	for _, place := range []string{"loopback", "memory"} {
		for _, kind := range []string{"bare", "transport"} {
			b.Run(place+"/"+kind, func(b *testing.B) {
				var base http.RoundTripper = memory
				url := "http://provider"
				if place == "loopback" {
					kept := &http.Transport{}
					b.Cleanup(kept.CloseIdleConnections)
					base, url = kept, serve(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = io.Copy(io.Discard, r.Body)
						_, _ = io.WriteString(w, `{"id":"1"}`)
					}))
				}
				client := &http.Client{Transport: base}
				if kind == "transport" {
					client.Transport = idempotency.NewTransport(base, nil)
				}
				b.ReportAllocs()
				for b.Loop() {
					req := post(b.Context(), url, "8e03978e-40d5-43e8-bc93-6894a57f9324", `{"cents":4200}`)
					res, err := client.Do(req)
					if err != nil {
						b.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
			})
		}
	}
}
