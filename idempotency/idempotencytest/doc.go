// Package idempotencytest is for tests of what calls and serves by idempotency keys: Provider is a service to call that
// fails wherever a test wants it to, and counts its effects.
//
//	provider := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{
//		Script: []idempotencytest.Fault{idempotencytest.DropAfter, idempotencytest.FailBefore},
//	})
//	server := httptest.NewServer(provider)
//	... // calls to server.URL
//	charged := provider.Effects()[idempotency.Key("charge", "order-1")]
package idempotencytest
