// Package status serves what a service knows of itself as JSON, for operators and for einmal status: its consumers, its
// relays, its dead letters, and whatever else it adds.
//
//	mux.Handle("GET /einmal", status.Handler(status.Sections{
//		"consumer": func(context.Context) (any, error) { return billing.Status(), nil },
//		"outbox":   func(context.Context) (any, error) { return relay.Status(), nil },
//		"dead":     func(ctx context.Context) (any, error) { return deadletter.Summarize(ctx, dead) },
//	}, nil))
//
// The package knows none of them: a section is a function whose value is put into JSON, and each of these makes its
// own. It imports the standard library only. docs/status.md lists the fields.
//
// What it serves holds no payload, no message's key and no secret; but names of topics and texts of servers are not for
// everybody either: serve it where only operators come, on the port of probes and metrics.
package status
