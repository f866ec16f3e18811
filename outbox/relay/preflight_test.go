package relay

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/internal/recordsize"
)

// What cannot be sent now, or never, holds up the rest of its key, wherever that goes, and nothing else.
func TestPreflight(t *testing.T) {
	t.Parallel()
	const large = 2 << 20
	// what a row's value may have, beside a key of one byte
	largest := sarama.NewConfig().Producer.MaxMessageBytes - recordsize.Batch - recordsize.Record - 2*recordsize.Header - len("k") - len(outbox.IDHeader)
	forbidden := errors.New("forbidden")
	at := func(topic, key string, partition int64) *row {
		r := &row{topic: topic, named: &partition}
		if key != "" {
			r.key = []byte(key)
		}
		return r
	}
	sized := func(r *row, bytes int) *row {
		r.size = bytes
		return r
	}
	for name, c := range map[string]struct {
		rows          []*row
		taken, failed string
		full          bool
	}{
		"one after the other":    {[]*row{at("t", "k", 0), at("t", "l", 1), at("t", "k", 0)}, "0 1 2", "", false},
		"a partition that waits": {[]*row{at("t", "k", 2), at("t", "k", 1), at("t", "l", 1)}, "2", "", false},
		"behind one that waits":  {[]*row{at("t", "k", 1), at("t", "k", 2), at("t", "k", 1)}, "0", "", false},
		"of no key, one waits":   {[]*row{at("t", "", 2), at("t", "", 1)}, "1", "", false},
		"a topic that waits":     {[]*row{at("waits", "k", 0), at("t", "k", 0)}, "1", "", false},
		"another partition": {[]*row{at("t", "k", 0), at("t", "k", 1), at("t", "k", 0), at("t", "l", 1)}, "0 3", "",
			true},
		"of no key, another": {[]*row{at("t", "", 0), at("t", "", 1)}, "0 1", "", false},
		"one that is too large": {[]*row{sized(at("t", "k", 0), large), at("t", "k", 0), at("t", "l", 0)}, "2", "0",
			false},
		"the largest that there is": {[]*row{sized(at("t", "k", 0), largest)}, "0", "", false},
		"a byte too large":          {[]*row{sized(at("t", "k", 0), largest+1)}, "", "0", false},
		"too large, behind its key": {[]*row{at("t", "k", 0), sized(at("t", "k", 0), large), at("t", "k", 0)}, "0", "",
			true},
		"a topic that is forbidden": {[]*row{at("forbidden", "k", 0), at("forbidden", "k", 0), at("t", "k", 0)}, "2", "0",
			false},
		"a partition below 0":     {[]*row{at("t", "k", -1), at("t", "k", 0)}, "", "0", false},
		"a partition that is not": {[]*row{at("u", "k", 7)}, "0", "", false},
		"more rows than are sent": {[]*row{at("t", "k", 0), at("t", "l", 0), at("t", "m", 0), at("t", "n", 0),
			at("t", "o", 0)}, "0 1 2 3", "", true},
		"more bytes than are sent": {[]*row{sized(at("t", "k", 0), 60_000), sized(at("t", "l", 0), 60_000)}, "0", "",
			true},
		"the first, whatever it has": {[]*row{sized(at("t", "k", 0), 200_000)}, "0", "", false},
		"those that fail are no load": {[]*row{sized(at("t", "k", 0), large), sized(at("t", "l", 0), 90_000)}, "1", "0",
			false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conf := sarama.NewConfig()
			w := &worker{cfg: &Config{BatchRows: 4, BatchBytes: 100_000}, cluster: &cluster{conf: conf},
				unavailable: newUnavailable()}
			w.unavailable.until[topicPartition{"t", 2}] = outage{until: time.Now().Add(time.Hour)}
			b := &batch{worker: w, blocked: blockedKeys{}}
			for i, r := range c.rows {
				r.id, r.bucket = int64(i), 5
			}
			taken := b.preflight(c.rows, map[string]topicState{
				"t": {partitions: 4, choose: newPartitioner(sarama.NewHashPartitioner, "t")},
				"u": {partitions: 4, choose: newPartitioner(sarama.NewHashPartitioner, "u")}, "waits": {wait: true},
				"forbidden": {err: forbidden},
			})
			ids := func(rows []*row) string { return strings.Trim(fmt.Sprint(idsOf(rows)), "[]") }
			if ids(b.rows) != c.taken || ids(b.failed) != c.failed || b.full != c.full {
				t.Errorf("taken %s, failed %s, full %v; want %s, %s, %v", ids(b.rows), ids(b.failed), b.full, c.taken, c.failed,
					c.full)
			}
			if n := len(b.rows) + len(b.failed); taken[5] != n {
				t.Errorf("%d of the bucket, want %d", taken[5], n)
			}
		})
	}
}

// A partition that took its rows is available again, however long it was not.
func TestPartitionIsAvailableAgain(t *testing.T) {
	t.Parallel()
	u, p := newUnavailable(), topicPartition{"t", 1}
	u.until[p] = outage{until: time.Now().Add(time.Hour), wait: newBackoff(time.Hour, time.Hour)}
	if !u.has(p) || u.has(topicPartition{"t", 2}) {
		t.Error("another partition is unavailable")
	}
	if u.remove(p); u.has(p) {
		t.Error("it is unavailable still")
	}
	if u.add(p); time.Until(u.until[p].until) > time.Second {
		t.Error("the first wait is not short")
	}
}

// That rows wait is no trouble while the first of them is another one from look to look: another relay sends them.
func TestEvidenceOfOtherRelays(t *testing.T) {
	t.Parallel()
	now := time.Now()
	e := evidence{since: now}
	for head := range int64(9) {
		now = now.Add(lookInterval)
		e.saw(look{at: now, head: 1 + head, oldest: time.Hour})
		if got := e.trouble(now, &Status{}); got != "" {
			t.Errorf("with a new first row: %s", got)
		}
	}
	for range 3 {
		now = now.Add(lookInterval)
		e.saw(look{at: now, head: 9, oldest: time.Hour})
	}
	if got := e.trouble(now, &Status{}); !strings.Contains(got, "events wait") {
		t.Errorf("with the same first row for %v: %q", 3*lookInterval, got)
	}
	e.saw(look{at: now})
	if got := e.trouble(now, &Status{}); got != "" {
		t.Errorf("without a row: %s", got)
	}
}
