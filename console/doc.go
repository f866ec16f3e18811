// Package console is a page on which operators see how a service, or a fleet of processes, is, and act where they are
// allowed to:
//
//	page, err := console.New(console.Config{
//		Title:     "billing",
//		Processes: []console.Process{{Name: "billing-1", Status: status.Handler(sections, nil)}},
//	})
//	mux.Handle("/einmal/", http.StripPrefix("/einmal", page))
//
// It works without a network beyond its sources, and for reading without JavaScript. All that it serves is embedded.
//
// What a page shows is asked for when the page is: of the processes by their status (package status), of the brokers
// for the whole group. A process that does not answer is shown as that, with since when; what it told before is not.
// Each source gets one question at a time, and at most one a second, whoever looks. The graphs of the last hour are of
// what Console.Run has seen.
//
// # Pages and actions
//
// A page is a file: a method of Console that answers with what its template of the same name shows, and a line in
// pages.go. An action is a deed: what it would do, and what does it, with a line in the same file. An action is never
// done by GET. All go through one gate (gate.go): the cross-origin check of net/http, Config.Authorize, a reason, a
// line of the log, and a row of Config.Audit.
package console
