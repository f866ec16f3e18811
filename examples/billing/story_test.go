package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func testStory(t *testing.T, b *serverstest.Broker, o storyOptions) *story {
	t.Helper()
	name := serverstest.Group(t)
	o.fake, o.log = b.Fake, io.Discard
	return newStory(target{brokers: strings.Join(b.Addrs, ","), database: serverstest.DatabaseURL(t), topic: name, group: name}, o)
}

func TestEveryOrderIsChargedOnce(t *testing.T) {
	t.Parallel()
	serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) {
		var out strings.Builder
		s := testStory(t, b, storyOptions{orders: 300, kills: 2, seed: 1, work: 5 * time.Millisecond, out: &out})
		f, err := s.tell(context.Background())
		t.Logf("%+v\n%s", f, out.String())
		if err != nil {
			t.Fatal(err)
		}
		if !f.exact() || f.Messages != 360 || f.Charges != 300 || f.Kills != 2 {
			t.Error("not every order was charged once")
		}
		// each of the 60 repetitions is recognised; a delivery is a charge, a duplicate, or was killed
		if f.Duplicates < 60 || f.Deliveries < f.Charges+f.Duplicates || f.Deliveries > f.Charges+f.Duplicates+2*partitions {
			t.Error("the deliveries do not add up")
		}
		for _, want := range []string{"SIGKILL, when", "SIGTERM, drained", "exit code 0", "every message is committed"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("the story does not tell of %q", want)
			}
		}
	})
}

// A worker that dies between COMMIT and mark gets the message again. No order here is sent twice: what is doubled is doubled by the
// kill.
func TestKillBetweenCommitAndMark(t *testing.T) {
	t.Parallel()
	for _, naive := range []bool{false, true} {
		t.Run(fmt.Sprintf("naive=%t", naive), func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := testStory(t, serverstest.InProcess(t), storyOptions{seed: 1, naive: naive, work: 2 * time.Millisecond, armed: time.Minute, out: &out})
			for i := range 20 {
				id := fmt.Sprint("order-", i)
				s.events = append(s.events, event{id: id, order: Order{ID: id, Cents: 1}})
			}
			s.workers = make([]*process, 1)
			s.plan = []step{{deed: killAfterCommit, messages: 0}}
			f, err := s.tell(context.Background())
			t.Logf("%+v\n%s", f, out.String())
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), "between COMMIT and mark") || f.Deliveries <= f.Messages || f.Missing > 0 {
				t.Error("the kill did not have the message delivered again")
			}
			if naive && f.Doubled == 0 {
				t.Error("a plain consumer did not charge the order again")
			}
			if !naive && (!f.exact() || f.Duplicates == 0) {
				t.Error("einmal charged the order again")
			}
		})
	}
}

func TestBothStoriesSideBySide(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	url := serverstest.DatabaseURL(t)
	var out strings.Builder
	s := show{compare: true, storyOptions: storyOptions{orders: 40, kills: 1, seed: 1, work: time.Millisecond, out: &out, log: io.Discard}}
	err := s.on(context.Background(), &stage{kafka: &servers.Kafka{Addrs: b.Addrs, Fake: b.Fake}, database: &servers.Database{URL: url}})
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	// 40 orders, of which 8 are sent twice: a plain consumer charges those twice without any kill
	for _, want := range []string{"einmal         plain", "messages                    48            48", "every order was charged once", "charges too many"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	schemas := regexp.MustCompile(`t_billing_\w+`).FindAllString(out.String(), -1)
	if len(schemas) != 2 || exist(t, url, schemas) {
		t.Errorf("the stories have left their schemas behind, or do not name them: %q", schemas)
	}
}

// exist reports whether one of the schemas is there.
func exist(t *testing.T, url string, schemas []string) (found bool) {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	err = pool.QueryRow(context.Background(), `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = ANY ($1))`, schemas).Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// trigger calls f once, when a text is written to it.
type trigger struct {
	strings.Builder
	text string
	once sync.Once
	f    func()
}

func (w *trigger) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.text) {
		w.once.Do(w.f)
	}
	return w.Builder.Write(b)
}

func TestInterruptedStoryLeavesNoWorkers(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	out := &trigger{text: "worker 2 starts", f: cancel}
	s := testStory(t, serverstest.InProcess(t), storyOptions{orders: 1000, kills: 2, seed: 1, work: time.Second, out: out})
	_, err := s.tell(ctx)
	if err == nil {
		t.Fatal("an interrupted story came to an end")
	}
	for _, p := range s.workers {
		if p == nil || !p.ended() {
			t.Error("a worker is left behind")
		}
	}
}

func TestWorkerThatDiesByItselfFailsTheStory(t *testing.T) {
	t.Parallel()
	var s *story
	out := &trigger{text: "worker 2 starts", f: func() { _ = syscall.Kill(s.workers[0].pid(), syscall.SIGKILL) }}
	s = testStory(t, serverstest.InProcess(t), storyOptions{orders: 1000, kills: 1, seed: 1, work: time.Second, out: out})
	if _, err := s.tell(context.Background()); err == nil || !strings.Contains(err.Error(), "worker 1 ended: signal: killed") {
		t.Errorf("error %v, want the end of worker 1", err)
	}
}

// When the story is killed, its workers' standard input ends.
func TestWorkerDoesNotOutliveItsStory(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := preparedStory(t, ctx)
	must(t, s.start(0))
	p := s.workers[0]
	if _, err := s.fake.WaitGroupStable(ctx, s.group, 1); err != nil {
		t.Fatal(err, p.log.String())
	}
	must(t, p.stdin.Close())
	if !p.endsWithin(20 * time.Second) {
		t.Error("the worker lives on")
	}
}

// preparedStory is a story of one order that has not begun, on an in-process Kafka.
func preparedStory(t *testing.T, ctx context.Context) *story { //nolint:revive // t comes first in tests
	t.Helper()
	s := testStory(t, serverstest.InProcess(t), storyOptions{orders: 1, out: io.Discard})
	pool, err := pgxpool.New(ctx, s.database)
	if err != nil {
		t.Fatal(err)
	}
	s.pool = pool
	t.Cleanup(pool.Close)
	must(t, s.prepare(ctx))
	t.Cleanup(s.cleanUp)
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
