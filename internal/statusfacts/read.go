// Package statusfacts reads what status.Handler serves, for those who show it: the console and einmal status. Its types
// have the fields that they show, of those that docs/status.md lists: what is not known is nil.
package statusfacts

import (
	"encoding/json"

	"github.com/einmal-go/einmal/status"
)

// Report is a status.Report whose sections of known kinds are read.
type Report struct {
	status.Report

	Consumers  map[string]*Consumer
	Outboxes   map[string]*Outbox
	Dead       map[string]*DeadLetters
	Janitors   map[string]*Janitor
	Unreadable map[string]error // sections of known kinds that could not be read
}

// Read reads a report. Sections of other kinds are the service's own, and may be anything.
func Read(text []byte) (*Report, error) {
	told, err := status.Read(text)
	if err != nil {
		return nil, err
	}
	r := &Report{
		Report: *told, Unreadable: map[string]error{},
		Consumers: map[string]*Consumer{}, Outboxes: map[string]*Outbox{}, Dead: map[string]*DeadLetters{},
		Janitors: map[string]*Janitor{},
	}
	for name, a := range r.Sections {
		if err := r.section(name, a.Value); err != nil {
			r.Unreadable[name] = err
		}
	}
	return r, nil
}

func (r *Report) section(name string, value json.RawMessage) error {
	var kind struct {
		Kind string `json:"kind"`
	}
	if len(value) > 0 {
		_ = json.Unmarshal(value, &kind) // one of the service's own may be anything
	}
	switch kind.Kind {
	case "consumer":
		return into(r.Consumers, name, value)
	case "outbox":
		return into(r.Outboxes, name, value)
	case "dead_letters":
		return into(r.Dead, name, value)
	case "janitor":
		return into(r.Janitors, name, value)
	}
	return nil
}

func into[T any](sections map[string]*T, name string, value json.RawMessage) error {
	var read T
	if err := json.Unmarshal(value, &read); err != nil {
		return err
	}
	sections[name] = &read
	return nil
}
