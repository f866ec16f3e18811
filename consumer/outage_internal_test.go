package consumer

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// What cannot be read is news when it begins and when it ends. Partitions that are not held any more are forgotten,
// topics are not.
func TestUnreads(t *testing.T) {
	t.Parallel()
	var u unreads
	for i, step := range []struct {
		partition int32
		unread    bool
		news      bool
	}{{0, false, false}, {0, true, true}, {0, true, false}, {1, true, true}, {-1, true, true}, {-1, true, false},
		{1, false, true}, {1, false, false}, {1, true, true}} {
		if news := u.note("t", step.partition, step.unread, fmt.Sprint(i)); news != step.news {
			t.Errorf("step %d: news %v", i, news)
		}
	}
	u.keep(map[string][]int32{"t": {1}})
	if all := u.list(); len(all) != 2 || all[0].Partition != -1 || all[1].Partition != 1 || !u.topics() {
		t.Errorf("%+v", all)
	}
	if since := u.list()[0].Since; u.note("t", -1, true, "still") || !u.list()[0].Since.Equal(since) ||
		u.list()[0].Reason != "still" {
		t.Errorf("%+v, since %v", u.list(), since)
	}
}

// An outage is told of when it begins, once a minute, and when it is over: when its need is met, and nothing has failed
// for a while.
func TestOutagesByTheClock(t *testing.T) {
	t.Parallel()
	still := func(string) bool { return true }
	for need, meet := range map[Need]func(o *outages){
		NeedDatabase:    func(o *outages) { o.tookEffect("t") },
		NeedTables:      func(o *outages) { o.tookEffect("t") },
		NeedCoordinator: func(o *outages) { o.met(NeedCoordinator) },
	} {
		var o outages
		var text bytes.Buffer
		log := slog.New(slog.NewTextHandler(&text, nil))
		says := func(step string, want string) {
			t.Helper()
			if got := text.String(); (want == "") != (got == "") || !strings.Contains(got, want) {
				t.Errorf("%s, %s: %q, want %q", need, step, got, want)
			}
			text.Reset()
		}
		o.failed(log, need, "t", errTried)
		says("begins", needTexts[need].begins)
		o.failed(log, need, "t", errTried)
		says("goes on", "")
		began := time.Now()
		o.tick(log, began.Add(50*time.Second), still)
		says("after 50 s", "")
		o.tick(log, began.Add(61*time.Second), still)
		says("after a minute", needTexts[need].lasts)
		o.tick(log, began.Add(62*time.Second), still)
		says("after 62 s", "")
		o.tookEffect("another")
		o.tick(log, began.Add(63*time.Second), still)
		says("another topic goes on", "")
		meet(&o)
		o.tick(log, began.Add(time.Second), still)
		says("a second after the last failure", "")
		if all := o.list(); len(all) != 1 || all[0].Need != need || all[0].Failures != 2 {
			t.Errorf("%s: %+v", need, all)
		}
		o.tick(log, began.Add(64*time.Second), still)
		says("is over", needTexts[need].ends)
		if len(o.list()) != 0 {
			t.Errorf("%s: it is over, and %+v", need, o.list())
		}
	}
	var o outages
	log := slog.New(slog.DiscardHandler)
	o.failed(log, NeedBrokers, "", errTried)
	o.tick(log, time.Now().Add(fetchErrFresh-time.Second), still)
	if len(o.list()) != 1 {
		t.Error("the brokers are back without a sign of it")
	}
	o.tick(log, time.Now().Add(fetchErrFresh+time.Second), still)
	if len(o.list()) != 0 {
		t.Error("no error for long, and the brokers are away")
	}
	o.failed(log, NeedDatabase, "t", errTried)
	o.tick(log, time.Now().Add(time.Hour), func(string) bool { return false })
	if len(o.list()) != 0 {
		t.Error("no message of this process waits, and its database is away")
	}
}

// Ten lines of one text are written in a second; what is left out is told.
func TestLinesAreBounded(t *testing.T) {
	t.Parallel()
	var l lineLimit
	var text bytes.Buffer
	log := slog.New(slog.NewTextHandler(&text, nil))
	for range 25 {
		l.write(log, slog.LevelWarn, "one", nil)
	}
	l.write(log, slog.LevelWarn, "other", nil)
	if got := text.String(); strings.Count(got, "msg=one") > 20 || strings.Count(got, "msg=one") < 10 ||
		strings.Count(got, "msg=other") != 1 {
		t.Errorf("%s", got)
	}
	left := 25 - strings.Count(text.String(), "msg=one")
	text.Reset()
	l.tick(log, time.Now().Add(2*time.Second))
	l.tick(log, time.Now().Add(3*time.Second))
	if got := text.String(); left == 15 && strings.Count(got, fmt.Sprintf("%s=%d", attrSuppressed, left)) != 1 {
		t.Errorf("%d were left out: %s", left, got)
	}
}

// A transaction that holds a partition back is told of once, after a minute. One that begins elsewhere is another one.
func TestOpenTransactionIsToldOnce(t *testing.T) {
	t.Parallel()
	var log logBuffer
	cl, _ := testClaim(PartitionOrder, nil)
	cl.run.log = slog.New(slog.NewTextHandler(&log, nil))
	told := func() int {
		log.mu.Lock()
		defer log.mu.Unlock()
		return strings.Count(log.text.String(), "stays open")
	}
	age := func(d time.Duration) { cl.transaction.since = cl.transaction.since.Add(-d) }
	cl.heldBack(0, 0)
	if !cl.status().OpenTransaction.IsZero() {
		t.Fatal("nothing waits")
	}
	cl.heldBack(0, 5)
	age(transactionTold - time.Second)
	since := cl.status().OpenTransaction
	if cl.heldBack(0, 6); !cl.status().OpenTransaction.Equal(since) || told() != 0 {
		t.Errorf("since %v, was %v, told %d times", cl.status().OpenTransaction, since, told())
	}
	age(2 * time.Second)
	cl.heldBack(0, 6)
	if cl.heldBack(0, 7); told() != 1 {
		t.Errorf("told %d times", told())
	}
	cl.first = 3
	if cl.heldBack(3, 7); time.Since(cl.status().OpenTransaction) > transactionTold {
		t.Errorf("another transaction is open since %v", cl.status().OpenTransaction)
	}
	cl.mu.Lock()
	cl.held = 1
	cl.mu.Unlock()
	if cl.heldBack(3, 7); !cl.status().OpenTransaction.IsZero() {
		t.Error("there is something to do, and it is the transaction that is waited for")
	}
}
