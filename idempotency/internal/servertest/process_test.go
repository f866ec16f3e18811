package servertest_test

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/idempotency"
	"github.com/einmal-go/einmal/idempotency/pgxidempotency"
)

// childEnv has the database's URL in a process that is the server of the tests below.
const childEnv = "EINMAL_SERVERTEST_CHILD"

// serveUntilTerminated is that process: it serves, says what it does on its standard output, and shuts down in order.
func serveUntilTerminated(url string) error {
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		return err
	}
	defer pool.Close()
	handler, err := idempotency.NewHandler(pgxidempotency.New(pool, nil), slowly,
		idempotency.HandlerConfig{SingleTenant: true})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() { say("terminated") })
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	say("http://" + listener.Addr().String())
	<-ctx.Done()
	patient, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Shutdown(patient); err != nil {
		return err
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// slowly is its handler: it writes, and answers when it may.
func slowly(ctx context.Context, tx pgx.Tx, w http.ResponseWriter, _ *http.Request) error {
	if err := write(ctx, tx); err != nil {
		return err
	}
	say("written")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	w.WriteHeader(http.StatusCreated)
	return nil
}

func say(what string) { _, _ = os.Stdout.WriteString("@ " + what + "\n") }

// child is the process, seen from outside.
type child struct {
	*exec.Cmd
	url   string
	in    *os.File
	lines chan string
}

func startChild(t *testing.T, pool *pgxpool.Pool) *child {
	t.Helper()
	in, goOn, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := &child{Cmd: exec.Command(os.Args[0]), in: goOn, lines: make(chan string, 10)}
	c.Env = append(os.Environ(), childEnv+"="+pool.Config().ConnString())
	c.Stdin, c.Stderr = in, os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if line, ok := strings.CutPrefix(lines.Text(), "@ "); ok {
				c.lines <- line
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill()
		<-read
		_ = c.Wait()
		_ = goOn.Close()
	})
	c.url = c.line(t)
	return c
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	select {
	case line := <-c.lines:
		return line
	case <-time.After(time.Minute):
		t.Fatal("the process says nothing")
		return ""
	}
}

func (c *child) goOn(t *testing.T) {
	t.Helper()
	if _, err := c.in.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
}

// begin sends a request, and returns when its handler has written.
func (c *child) begin(t *testing.T) (answered chan int) {
	t.Helper()
	answered = make(chan int, 1)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.url, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "key")
	go func() {
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			answered <- 0
			return
		}
		_ = resp.Body.Close()
		answered <- resp.StatusCode
	}()
	if line := c.line(t); line != "written" {
		t.Fatalf("the process says %q", line)
	}
	return answered
}

// A request that runs when the process is told to end is finished, and answered.
func TestSIGTERM(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := startChild(t, pool)
	answered := c.begin(t)
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if line := c.line(t); line != "terminated" {
		t.Fatalf("the process says %q", line)
	}
	c.goOn(t)
	if status := <-answered; status != http.StatusCreated {
		t.Errorf("answered %d, want 201", status)
	}
	s := &service{pool, serve(t, pool, answering(201, ""), idempotency.HandlerConfig{}), t}
	s.wantEffects(1)
	s.want(s.post("key"), 201, "", true)
	s.wantEffects(1)
}

// A request that runs when the process is killed is rolled back, and its key is free as soon as the server has noticed.
func TestSIGKILL(t *testing.T) {
	t.Parallel()
	pool := database(t)
	c := startChild(t, pool)
	answered := c.begin(t)
	s := &service{pool, serve(t, pool, answering(201, ""), idempotency.HandlerConfig{}), t}
	s.wantProblem(s.post("key"), http.StatusConflict, idempotency.ProblemInProgress)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if status := <-answered; status != 0 {
		t.Errorf("answered %d by a process that was killed", status)
	}
	s.want(s.untilFree("key"), 201, "", false)
	s.wantEffects(1)
}
