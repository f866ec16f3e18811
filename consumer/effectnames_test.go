package consumer_test

import (
	"strings"
	"testing"

	"github.com/einmal-go/einmal/consumer"
)

// namedSteps is a link whose branches record under names of their own.
type namedSteps struct {
	consumer.Handler
	names    []string
	branches [][]consumer.Handler
}

func (s namedSteps) Branches() [][]consumer.Handler { return s.branches }

func (s namedSteps) EffectNames(name string) (names []string) {
	for _, n := range s.names {
		names = append(names, name+"/"+n)
	}
	return names
}

// choice is a link that chooses between branches, which record under the topic's name.
type choice struct {
	consumer.Handler
	branches [][]consumer.Handler
}

func (c choice) Branches() [][]consumer.Handler { return c.branches }

func TestTwoTopicsUnderOneName(t *testing.T) {
	t.Parallel()
	named := func(name, same string) consumer.Topic {
		return consumer.Topic{Handler: nop, Consumer: name, SameEventsAs: same}
	}
	inner := namedSteps{nop, []string{"mail"}, [][]consumer.Handler{{nop}}}
	stepped := func(name string) consumer.Topic { // has the effects name/ledger, name/notify, name/notify/mail
		s := namedSteps{nop, []string{"ledger", "notify"}, [][]consumer.Handler{{nop}, {inner}}}
		return consumer.Topic{Consumer: name, Handler: choice{nop, [][]consumer.Handler{{nop}, {s}}}}
	}
	for _, test := range []struct {
		name   string
		topics map[string]consumer.Topic
		field  string // of the error, "" for none
		says   []string
	}{
		{"two names", map[string]consumer.Topic{"a": named("one", ""), "b": named("two", "")}, "", nil},
		{"by default", map[string]consumer.Topic{"a": {Handler: nop}, "b": {Handler: nop}}, "", nil},
		{"one name", map[string]consumer.Topic{"a": named("billing", ""), "b": named("billing", "")}, "b",
			[]string{`"billing"`, `topic "a"`, `SameEventsAs: "a"`}},
		{"the default of another", map[string]consumer.Topic{"a": {Handler: nop}, "b": named("billing/a", "")}, "b",
			[]string{`"billing/a"`}},
		{"of three, one", map[string]consumer.Topic{"a": named("billing", ""), "b": named("x", ""),
			"c": named("billing", "")}, "c", []string{`topic "a"`}},
		{"the same events", map[string]consumer.Topic{"a": named("billing", ""), "b": named("billing", "a"),
			"c": named("billing", "a")}, "", nil},
		{"in either direction", map[string]consumer.Topic{"a": named("billing", "b"), "b": named("billing", "")}, "", nil},
		{"the same events as a topic of another process", map[string]consumer.Topic{"b": named("billing", "a"),
			"c": named("billing", "a")}, "", nil},
		{"those of another", map[string]consumer.Topic{"a": named("billing", ""), "b": named("billing", "z")}, "b",
			[]string{`topic "a"`}},
		{"the same events under two names", map[string]consumer.Topic{"a": named("one", ""), "b": named("two", "a")}, "b",
			[]string{`"one"`, `"two"`, "twice"}},
		{"of its own", map[string]consumer.Topic{"a": named("billing", "a")}, "", nil},
		{"a step of another", map[string]consumer.Topic{"a": stepped("x"), "b": named("x/ledger", "")}, "b",
			[]string{`"x/ledger"`, `topic "a"`}},
		{"a step of a step of another", map[string]consumer.Topic{"a": stepped("x"), "b": named("x/notify/mail", "")}, "b",
			[]string{`"x/notify/mail"`}},
		{"no step of another", map[string]consumer.Topic{"a": stepped("x"), "b": named("x/mail", ""), "c": stepped("y")}, "",
			nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			cfg := valid()
			cfg.Topics = test.topics
			_, err := consumer.New(cfg)
			found := configErrors(t, err)
			if test.field == "" {
				if len(found) > 0 {
					t.Fatal(err)
				}
				return
			}
			if len(found) != 1 || found[0].Field != `Config.Topics["`+test.field+`"]` {
				t.Fatalf("New: %v, want one error of %s", err, test.field)
			}
			for _, want := range test.says {
				if !strings.Contains(found[0].Problem, want) {
					t.Errorf("%q does not say %s", found[0].Problem, want)
				}
			}
		})
	}
}
