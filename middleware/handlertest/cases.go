package handlertest

import (
	"fmt"

	"github.com/einmal-go/einmal/consumer/consumertest"
)

// testCase is a way to deliver messages more than once.
type testCase[Tx any] struct {
	name string
	run  func(b *bench[Tx]) (finding string)
}

// cases are those for messages that make so many calls of the store at most, which makes groups or does not.
func cases[Tx any](calls int, groups bool) []testCase[Tx] {
	all := []testCase[Tx]{
		{"delivered twice", (*bench[Tx]).twice},
		{"all again after a restart", (*bench[Tx]).again},
		{"two owners at once", (*bench[Tx]).atOnce},
	}
	for _, at := range points {
		for call := 1; call <= calls; call++ {
			name := fmt.Sprint("failure ", at)
			if calls > 1 {
				name = fmt.Sprintf("%s, call %d of the store", name, call)
			}
			all = append(all, testCase[Tx]{name, func(b *bench[Tx]) string { return b.failing(at, call) }})
		}
	}
	if groups {
		all = append(all, groupCases[Tx]()...)
	}
	return all
}

// failing delivers each message with a failure at that point of that call, if there is one.
func (b *bench[Tx]) failing(at Point, call int) string {
	for i, msg := range b.h.Messages {
		s := story{event: i, what: fmt.Sprintf("when the store fails %v", at), reason: reasonOf(at)}
		var out *consumertest.Outcome
		out, s.hidden = b.fail(at, call, msg)
		if finding := b.judge(s, out); finding != "" {
			return finding
		}
	}
	return ""
}

// twice delivers each message again, back to back.
func (b *bench[Tx]) twice() string {
	for i, msg := range b.h.Messages {
		s := story{event: i, what: "when it is delivered twice", reason: notHeldBack}
		if finding := b.judge(s, b.deliver(msg), b.deliver(msg)); finding != "" {
			return finding
		}
	}
	return ""
}

// again delivers all messages, and all once more to another process: an offset that was set back.
func (b *bench[Tx]) again() string {
	for _, msg := range b.h.Messages {
		b.deliver(msg)
	}
	b.restart()
	for i, msg := range b.h.Messages {
		s := story{event: i, upTo: len(b.h.Messages) - 1, what: "when all messages are delivered again after a restart",
			reason: notHeldBack}
		if finding := b.judge(s, b.deliver(msg)); finding != "" {
			return finding
		}
	}
	return ""
}

// atOnce delivers each message to two owners of its partition.
func (b *bench[Tx]) atOnce() string {
	for i, msg := range b.h.Messages {
		s := story{event: i, what: "when two owners of the partition handle it at the same time", reason: notHeldBack}
		outs := b.meet(msg)
		if finding := b.judge(s, outs[:]...); finding != "" {
			return finding
		}
	}
	return ""
}
