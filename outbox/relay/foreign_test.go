package relay_test

import (
	"os"
	"regexp"
	"testing"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/outboxtest"
)

// The INSERT of docs/outbox.md, for other languages, writes what the relay sends.
func TestInsertOfTheDocument(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/outbox.md")
	must(t, err)
	found := regexp.MustCompile("(?s)```sql\n(insert into outbox_event.*?);\n```").FindSubmatch(text)
	if found == nil {
		t.Fatal("the document has no INSERT")
	}
	b := newBench(t, 3)
	insert := regexp.MustCompile("orders.confirmed").ReplaceAllString(string(found[1]), b.topic)
	b.MustExec(insert)
	b.MustExec(regexp.MustCompile(`'', null\)$`).ReplaceAllString(insert, `'\x01016102780000', 2)`)) // and with headers: "a" is "x", "" is null
	start(t, b.config(outbox.SinglePhase))
	eventually(t, "the first is sent", func() bool { return b.rows("status = 'PENDING'") == 0 })
	list, err := outboxtest.Records(b.b.Addrs, b.topic)
	must(t, err)
	if len(list) != 2 {
		t.Fatalf("%d records", len(list))
	}
	for _, msg := range list {
		if string(msg.Key) != "order-42" || string(msg.Value) != `{"id": 42}` ||
			outboxtest.IDOf(msg) != "0197c0f2-6f1e-7c3a-9d51-2f0d6f1f8a10" {
			t.Errorf("%s: %s", msg.Key, msg.Value)
		}
		if msg.Partition == 2 && len(msg.Headers) == 3 && string(msg.Headers[1].Key) == "a" &&
			string(msg.Headers[1].Value) == "x" && msg.Headers[2].Value == nil {
			return
		}
	}
	t.Error("no record has the headers and the partition")
}
