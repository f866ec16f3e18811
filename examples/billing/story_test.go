package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func testStory(t *testing.T, b *serverstest.Broker, o story.Options) *story.Story {
	t.Helper()
	o.Name, o.Fake, o.Brokers = serverstest.Group(t), b.Fake, strings.Join(b.Addrs, ",")
	if o.Log == nil {
		o.Log = io.Discard
	}
	if o.As == nil {
		o.Databases = databases(t)
	}
	return story.New(o)
}

func databases(t *testing.T) story.Databases {
	t.Helper()
	return story.Databases{
		Orders: serverstest.DatabaseURL(t), Billing: serverstest.DatabaseURL(t), Provider: serverstest.DatabaseURL(t),
		Receipts: serverstest.DatabaseURL(t), Story: serverstest.DatabaseURL(t),
	}
}

func TestEveryOrderIsChargedOnce(t *testing.T) {
	t.Parallel()
	for name, share := range map[string]int{"alone": 1, "in groups": 20} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			serverstest.EachBroker(t, func(t *testing.T, b *serverstest.Broker) { chargedOnce(t, b, share) })
		})
	}
}

// chargedOnce tells a story and counts.
func chargedOnce(t *testing.T, b *serverstest.Broker, share int) {
	t.Helper()
	var out strings.Builder
	s := testStory(t, b, story.Options{Orders: 200, Kills: 6, Seed: 1, Work: 2 * time.Millisecond, Drop: 0.1, Share: share,
		Out: &out})
	f, err := s.Tell(context.Background())
	t.Logf("%+v\n%s", f, out.String())
	if err != nil {
		t.Fatal(err)
	}
	if !f.Exact() || f.Requests != 200 || f.Kills != 6 {
		t.Error("not every request was one order, one charge, one payment and one receipt")
	}
	for _, r := range f.Audits {
		if r.Recorded != 200 || r.Effects != 200 || r.Undecided != 0 {
			t.Errorf("an audit says: %+v", r)
		}
	}
	if len(f.Audits) != 2 {
		t.Errorf("%d topics were audited, want 2", len(f.Audits))
	}
	// 60 requests are sent twice, without counting those that got no answer
	if f.Sent < 260 || f.LostAnswers == 0 || f.Deliveries < 400 {
		t.Error("not enough was repeated")
	}
	for _, want := range []string{"orders: SIGKILL", "relay: SIGKILL", "billing 1: SIGKILL", "provider: SIGKILL",
		"receipts: SIGKILL",
		"SIGTERM, drained", "exit code 0", "every request was answered", "every message is committed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the story does not tell of %q", want)
		}
	}
}

// Plain services do damage: else the story of einmal proves nothing.
func TestPlainServicesDoDamage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 40, Kills: 1, Seed: 1, Drop: 0.1, Mode: story.Plain,
		Out: &out})
	f, err := s.Tell(context.Background())
	t.Logf("%+v\n%s", f, out.String())
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range f.Ledgers {
		if l.Doubled == 0 { // 12 requests are sent twice
			t.Errorf("ledger %d: nothing is doubled", i)
		}
	}
}

// A careful team loses nothing and doubles nothing in its own databases. What it cannot do by hand so easily is the
// provider's: a process that dies between the call and its own COMMIT calls again, with another key.
func TestCarefulServices(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 150, Kills: 6, Seed: 1, Work: 20 * time.Millisecond,
		Drop: 0.1, Mode: story.Careful, Out: &out})
	f, err := s.Tell(context.Background())
	t.Logf("%+v\n%s", f, out.String())
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range f.Ledgers {
		if provider := i == 2; l.Missing != 0 || l.Doubled != 0 && !provider {
			t.Errorf("ledger %d: %+v", i, l)
		}
	}
}

func TestStoriesSideBySide(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t)
	url := serverstest.DatabaseURL(t)
	var out strings.Builder
	s := story.Show{Compare: true, Options: story.Options{Orders: 30, Kills: 1, Seed: 1, Work: time.Millisecond, Out: &out,
		Log: io.Discard}}
	err := s.On(context.Background(), &story.Stage{Kafka: &servers.Kafka{Addrs: b.Addrs, Fake: b.Fake},
		Database: &servers.Database{URL: url}})
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"einmal       careful         plain",
		"requests                      30            30            30", "one payment at the provider", "provider charges",
		"careful: ", "audit                       orders.confirmed  payments.charged\nmessages"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	schemas := regexp.MustCompile(`t_billing\w+`).FindAllString(out.String(), -1)
	if len(schemas) != 15 || exist(t, url, schemas) {
		t.Errorf("the stories have left their schemas behind, or do not name them: %q", schemas)
	}
}

// exist reports whether one of the schemas is there.
func exist(t *testing.T, url string, schemas []string) (found bool) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	err = pool.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = ANY ($1))`,
		schemas).Scan(&found)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// trigger calls f once, when a text is written to it.
type trigger struct {
	text string
	once sync.Once
	f    func(line string)

	mu  sync.Mutex
	all strings.Builder
}

func (w *trigger) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}

func (w *trigger) Write(b []byte) (int, error) {
	if strings.Contains(string(b), w.text) {
		w.once.Do(func() { w.f(string(b)) })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.Write(b)
}

var pidIn = regexp.MustCompile(`pid (\d+)`)

func pids(out string) (list []int) {
	for _, m := range pidIn.FindAllStringSubmatch(out, -1) {
		pid, _ := strconv.Atoi(m[1])
		list = append(list, pid)
	}
	return list
}

func TestInterruptedStoryLeavesNoProcesses(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	out := &trigger{text: "receipts starts", f: func(string) { cancel() }}
	s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 1000, Kills: 2, Seed: 1, Work: time.Second,
		Out: out})
	if _, err := s.Tell(ctx); err == nil {
		t.Fatal("an interrupted story came to an end")
	}
	list := pids(out.String())
	if len(list) != 6 {
		t.Fatalf("processes %v, want 6", list)
	}
	for _, pid := range list {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is left behind", pid)
		}
	}
}

func TestProcessThatDiesByItselfFailsTheStory(t *testing.T) {
	t.Parallel()
	out := &trigger{text: "relay starts", f: func(line string) { _ = syscall.Kill(pids(line)[0], syscall.SIGKILL) }}
	s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 1000, Kills: 1, Seed: 1, Work: time.Second,
		Out: out})
	if _, err := s.Tell(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "relay ended: signal: killed") {
		t.Errorf("error %v, want the end of the relay", err)
	}
}

// When the story is killed, its processes' standard input ends.
func TestProcessDoesNotOutliveItsStory(t *testing.T) {
	t.Parallel()
	url := serverstest.DatabaseURL(t)
	cmd := exec.Command(os.Args[0], "provider", "-listen", "127.0.0.1:0")
	cmd.Env = append(os.Environ(), servers.EnvDatabaseURL+"="+url, fmt.Sprintf("BILLING_STORY={%q: %q}", "database", url))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "up\n" {
		t.Fatal(line, err)
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the process ended with %v, want exit code 1", err)
	}
}
