package faulttest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/einmal-go/einmal/dedupstore/memstore"
	"github.com/einmal-go/einmal/internal/servers"
)

// envChild has the test binary be a member in a process of its own.
const envChild = "EINMAL_FAULTS_CHILD"

// orders are what a child is told.
type orders struct {
	Client, Name, Group, Topic string
	Brokers                    []string
}

// childMain runs a member until SIGTERM. It says on its standard output what it does.
func childMain(text string) int {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	m := &member{
		name: o.Name, brokers: o.Brokers, group: o.Group, topic: o.Topic, pace: new(atomic.Int64),
		journal: newJournal(), store: memstore.New(), network: newNetwork(),
	}
	m.pace.Store(int64(time.Second / perSecond))
	m.journal.echo = os.Stdout
	run, err := m.prepare(o.Client)
	if err == nil {
		err = run(ctx)
	}
	fmt.Fprint(os.Stderr, m.log.String())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is a member in a process of its own, as the test sees it.
type child struct {
	cmd  *exec.Cmd
	log  servers.Output
	done chan struct{} // closed when it has ended and all that it said is in the journal
}

// joinApart starts a member in a process of its own. It ends with the test at the latest.
func (g *group) joinApart(name string) *child {
	t := g.w.t
	t.Helper()
	g.apart = true
	text, err := json.Marshal(orders{Client: g.client, Name: name, Group: g.name, Topic: g.w.topic,
		Brokers: g.w.cluster.Addrs})
	must(t, err)
	c := &child{cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), envChild+"="+string(text))
	c.cmd.Stderr = &c.log
	words, err := c.cmd.StdoutPipe()
	must(t, err)
	must(t, c.cmd.Start())
	go func() {
		defer close(c.done)
		g.listen(words)
		_ = c.cmd.Wait() // ProcessState says how it ended
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
		if t.Failed() || *showLog {
			t.Logf("%s of %s, %v, logged\n%s", name, g.client, c.cmd.ProcessState, c.log.String())
		}
	})
	return c
}

// line is what a child says. It is written before the message is marked: what a killed child did not say, it did not
// commit.
type line struct {
	Hold     *hold     `json:",omitempty"`
	Delivery *delivery `json:",omitempty"`
}

func (l line) write(to io.Writer) {
	text, err := json.Marshal(l)
	if err == nil {
		_, _ = to.Write(append(text, '\n'))
	}
}

// listen takes what a child says into the journal.
func (g *group) listen(words io.Reader) {
	for lines := bufio.NewScanner(words); lines.Scan(); {
		var l line
		if json.Unmarshal(lines.Bytes(), &l) != nil {
			continue // the last one of a killed child
		}
		if l.Hold != nil {
			g.held(*l.Hold)
		}
		if l.Delivery != nil {
			g.delivered(*l.Delivery)
		}
	}
}
