package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// sentOutbox is a topic, and rows that say that their events are in it. The last one's is not.
func sentOutbox(t *testing.T, url string, b *serverstest.Broker) (topic string) {
	t.Helper()
	einmal(t, url, "schema", "apply", "outbox").want(t, exitOK)
	topic = b.Topic(t, 1)
	for n := range 4 {
		exec(t, url, fmt.Sprintf(`insert into outbox_event (event_id, topic, partition_key, payload, status, published_at)
values ('e%d', '%s', 'secret key', 'secret value', 'PUBLISHED', clock_timestamp())`, n, topic))
		if n < 3 {
			b.Produce(t, &sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder("secret key"), Value: sarama.StringEncoder("secret value"),
				Timestamp: time.Now(),
				Headers:   []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, "e", n)}},
			})
		}
	}
	return topic
}

// The outbox's audit says what was found by its table, by JSON and by its exit code, shows no value unless it is told
// to, and does not say that all is well where it could not look, or where there was nothing to be checked.
func TestAuditOutbox(t *testing.T) {
	t.Parallel()
	b, url := serverstest.InProcess(t), serverstest.DatabaseURL(t)
	topic := sentOutbox(t, url, b)
	vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
	check := func(args ...string) result {
		return withEnv(t, vars, append([]string{"audit", "outbox", "-topic", topic}, args...)...)
	}
	check().want(t, exitNo, "missing in the topic", `"e3"`)
	exec(t, url, "delete from outbox_event where event_id in ('e3')")
	check("-keep", "1h").want(t, exitOK, "behind a later one of the key  0")
	exec(t, url, "delete from outbox_event where event_id = 'e1'")
	check().want(t, exitOK, "1 events have no row. Say by -keep")
	r := check("-keep", "1h")
	r.want(t, exitNo, `"e1", partition 0 offset 1`)
	if strings.Contains(r.out+r.errors, "secret") {
		t.Errorf("it shows a value:\n%s", r.out)
	}
	check("-keep", "1h", "-value").want(t, exitNo, "secret value")
	var report audit.OutboxReport
	if r := check("-keep", "1h", "-json"); json.Unmarshal([]byte(r.out), &report) != nil ||
		report.Found[audit.WithoutRow].Count != 1 || report.Messages != 3 {
		t.Errorf("%s", r.out)
	}
	exec(t, url, "update outbox_event set event_id = 'e9' where event_id = 'e0'; update outbox_event set event_id = 'e0' where event_id = 'e2'; update outbox_event set event_id = 'e2' where event_id = 'e9'")
	check().want(t, exitNo, "behind a later one of the key  1", `"e2", partition 0 offset 2, partition 0 offset 0`)
	exec(t, url, "delete from outbox_event")
	check().want(t, exitOK, "nothing was checked")
	for _, c := range []struct{ args, says string }{
		{"-topic " + topic + "x", topic + "x"},
		{"-table outbox_event=nothing", "there is no table"},
		{"-keep -1h", "-keep"},
		{"-from 1h -to 2h", "-from is not before -to"},
		{"-group g", "not defined: -group"},
		{"-db sqlite", "the outbox needs PostgreSQL"},
		{"x", "takes no arguments"},
	} {
		check(strings.Fields(c.args)...).want(t, exitUsage, c.says)
	}
}

var moments = regexp.MustCompile(`20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// The output that docs/audit.md explains is that of the command.
func TestAuditOutputInDocument(t *testing.T) {
	t.Parallel()
	b, url := serverstest.InProcess(t), serverstest.DatabaseURL(t)
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	topic, group := b.Topic(t, 1), serverstest.Group(t)
	exec(t, url, "create table charge (event_id text not null); insert into charge values ('o-1'), ('o-2'), ('o-2'), ('o-4')")
	exec(t, url, fmt.Sprintf("insert into processed_event (event_id, consumer_id) select id, '%s/%s' from unnest(array['o-1', 'o-2', 'o-4']) id", group, topic))
	for n := range 4 {
		b.Produce(t, &sarama.ProducerMessage{
			Topic: topic, Timestamp: time.Now(),
			Headers: []sarama.RecordHeader{{Key: []byte("event-id"), Value: fmt.Append(nil, "o-", n+1)}},
		})
	}
	b.Commit(t, group, topic, 0, 4)
	vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
	r := withEnv(t, vars, "audit", "-topic", topic, "-group", group, "-effects", "select event_id from charge")
	r.want(t, exitNo)
	text, err := os.ReadFile("../../docs/audit.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(moments.ReplaceAllString(string(text), "time"), "```text\n"+
		moments.ReplaceAllString(r.out, "time")+"```") {
		t.Errorf("docs/audit.md does not have:\n%s", r.out)
	}
}

// What could not be looked at is neither yes nor no: exit code 2, whichever of the servers is away, and for both
// audits.
func TestAuditThatCannotLook(t *testing.T) {
	t.Parallel()
	b, url := serverstest.InProcess(t), serverstest.DatabaseURL(t)
	topic := sentOutbox(t, url, b)
	einmal(t, url, "schema", "apply", "dedup").want(t, exitOK)
	const nowhere = "127.0.0.1:1"
	for _, command := range []string{"audit -group g", "audit outbox"} {
		for says, vars := range map[string]map[string]string{
			"-timeout takes longer":   {envURL: url, envBrokers: nowhere},
			"connect to the database": {envURL: "postgres://nobody@" + nowhere + "/db", envBrokers: strings.Join(b.Addrs, ",")},
			"which cluster?":          {envURL: url},
			"which database?":         {envBrokers: strings.Join(b.Addrs, ",")},
		} {
			r := withEnv(t, vars, append(strings.Fields(command), "-topic", topic, "-timeout", "2s", "-db", "postgres")...)
			r.want(t, exitUsage, says)
			if r.out != "" {
				t.Errorf("%s has an answer:\n%s", command, r.out)
			}
		}
	}
}

// Who looks on at a terminal sees what is read; in a pipe, in a file, and among what is printed there is nothing of it.
func TestAuditProgress(t *testing.T) {
	t.Parallel()
	b, url := serverstest.InProcess(t), serverstest.DatabaseURL(t)
	topic := sentOutbox(t, url, b)
	vars := map[string]string{envURL: url, envBrokers: strings.Join(b.Addrs, ",")}
	audited := func(stderr io.Writer) (out string) {
		var b bytes.Buffer
		env := &environment{&b, stderr, func(name string) string { return vars[name] }, strings.NewReader("")}
		if code := run(t.Context(), env, []string{"audit", "outbox", "-topic", topic, "-json"}); code != exitNo {
			t.Errorf("exit code %d:\n%s", code, b.String())
		}
		return b.String()
	}
	var terminal bytes.Buffer
	if out := audited(&terminal); strings.Contains(out, "\x1b") || !json.Valid([]byte(out)) {
		t.Errorf("the output has some of it:\n%s", out)
	}
	const clearLine = "\r\x1b[K"
	if got, want := terminal.String(), clearLine+"rows: 0"+clearLine+"messages: 0 of 3"+clearLine+
		"comparing: 0 of 7"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, clearLine) {
		t.Errorf("the terminal has %q, want %q and more", got, want)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	audited(w)
	_ = w.Close()
	if got, err := io.ReadAll(r); err != nil || len(got) > 0 {
		t.Errorf("a pipe has %q, %v", got, err)
	}
}
