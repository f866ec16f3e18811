package story

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/einmal-go/einmal/internal/servers"
)

// kind is what can be done to a process, beside killing it at a random moment.
type kind int

const (
	sender   kind = iota // it has no moment of its own
	server               // it can die between COMMIT and answer
	receiver             // it can die between COMMIT and mark
)

// role is a process of the story.
type role struct {
	name    string
	command string // of this program
	kind    kind
	service string // whose database it works in
	relay   bool   // the others' services send by themselves
	args    func(s *Story) []string
}

// The topics, and the groups that read them.
const (
	ordersTopic    = "orders.confirmed"
	paymentsTopic  = "payments.charged"
	billingGroup   = "billing-service"
	receiptsGroup  = "receipts-service"
	inheritedFile  = "fd:3"
	ordersService  = "orders"
	billingService = "billing"
	bankService    = "provider"
	receiptService = "receipts"
)

// cast is who plays in the story.
var cast = []role{
	{name: "orders", command: "orders", kind: server, service: ordersService, args: func(s *Story) []string {
		return []string{"-listen", inheritedFile, "-topic", s.topic(ordersTopic)}
	}},
	{name: "relay", command: "relay", kind: sender, service: ordersService, relay: true,
		args: func(*Story) []string { return nil }},
	{name: "billing 1", command: "charges", kind: receiver, service: billingService, args: billingArgs},
	{name: "billing 2", command: "charges", kind: receiver, service: billingService, args: billingArgs},
	{name: "provider", command: "provider", kind: server, service: bankService, args: func(s *Story) []string {
		return []string{"-listen", inheritedFile, "-takes", s.Work.String()}
	}},
	{name: "receipts", command: "receipts", kind: receiver, service: receiptService, args: func(s *Story) []string {
		return []string{"-topic", s.topic(paymentsTopic), "-group", s.topic(receiptsGroup), "-share", strconv.Itoa(s.Share)}
	}},
}

func billingArgs(s *Story) []string {
	return []string{
		"-topic", s.topic(ordersTopic), "-group", s.topic(billingGroup), "-share", strconv.Itoa(s.Share),
		"-payments", s.topic(paymentsTopic), "-provider", "http://" + s.sockets["provider"].addr,
	}
}

// topic returns the name that a topic or a group has in this story.
func (s *Story) topic(name string) string { return s.Name + "." + name }

// start starts the process of that index.
func (s *Story) start(i int) error {
	r := s.cast[i]
	text, err := json.Marshal(part{Name: r.name, Database: s.Databases.Story, Mode: s.Mode, Drop: s.Drop,
		Brokers: s.Brokers})
	if err != nil {
		return err
	}
	env := []string{
		envRole + "=" + string(text),
		servers.EnvKafkaBrokers + "=" + s.Brokers,
		servers.EnvDatabaseURL + "=" + s.url(r.name, r.service),
	}
	args := append([]string{r.command}, r.args(s)...)
	if s.As != nil {
		args = append(args, "-tables=false")
	}
	var files []*os.File
	if socket, ok := s.sockets[r.name]; ok {
		files = append(files, socket.file)
	}
	if socket, ok := s.ops[r.name]; ok {
		args = append(args, "-ops", fmt.Sprintf("fd:%d", 3+len(files)))
		files = append(files, socket.file)
	}
	p, err := start(r.name, args, env, files, s.Log)
	if err != nil {
		return err
	}
	s.processes[i] = p
	return nil
}

// socket is a port that stays open while the process that answers there is replaced: the kernel keeps what comes
// meanwhile.
type socket struct {
	addr string
	file *os.File
}

// openSockets opens a socket for each server, and in a story that is shown one for the operators of each process.
func (s *Story) openSockets() (err error) {
	s.sockets, s.ops = map[string]socket{}, map[string]socket{}
	for _, r := range s.cast {
		if r.kind == server {
			if s.sockets[r.name], err = openSocket(); err != nil {
				return fmt.Errorf("open a port for %s: %w", r.name, err)
			}
		}
		if s.Serve != "" {
			if s.ops[r.name], err = openSocket(); err != nil {
				return fmt.Errorf("open a port for %s: %w", r.name, err)
			}
		}
	}
	return nil
}

func openSocket() (socket, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return socket{}, err
	}
	defer l.Close()
	file, err := l.File() // a copy, which the children inherit
	return socket{l.Addr().String(), file}, err
}

func (s *Story) closeSockets() {
	for _, sockets := range []map[string]socket{s.sockets, s.ops} {
		for _, socket := range sockets {
			_ = socket.file.Close() // nil if it could not be opened
		}
	}
}
