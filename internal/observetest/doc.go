// Package observetest holds tests and nothing else: a whole service is run (consumer, dead letters, outbox, janitor),
// real conditions are provoked, and what metrics, spans and log lines say of them is looked at. Each instrument moves,
// each alert of docs/alerts fires, all names agree, and no secret shows.
package observetest
