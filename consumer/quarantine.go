package consumer

import (
	"log/slog"
	"time"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

// quarantine is of a partition that has a batch which cannot be decoded. sarama reads all partitions of a broker with
// one request, and an answer that it cannot decode fails as a whole: one such batch would stop them all. So a partition
// whose fetches fail so is fetched alone; if it is the one, it is paused, and the others go on. It is tried again, for
// ever: nothing is skipped.
type quarantine struct {
	examining bool // a goroutine looks at the partition
	paused    bool
}

const (
	quarantineFirst = time.Second // until a partition is tried again; then twice as long each time
	quarantineMost  = fetchErrFresh / 2
)

// examine is called with an error of the partition's fetches.
func (cl *claim) examine(err error) {
	if !topicwindow.Undecodable(err) {
		return
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.stopped:
	case cl.quarantine.paused:
		cl.group.Pause(cl.ref()) // something else resumed it
	case !cl.quarantine.examining:
		cl.quarantine.examining = true
		go cl.isolate()
	}
}

// isolate pauses the partition for as long as it cannot be decoded.
func (cl *claim) isolate() {
	defer cl.examined()
	for wait := quarantineFirst; ; wait = min(2*wait, quarantineMost) {
		at := cl.reached()
		ok, err := topicwindow.Decodes(cl.run.client.Client, cl.topic.name, cl.partition, at)
		if err == nil && (ok || !cl.quarantine.paused) {
			return
		}
		if err != nil {
			cl.cannotRead(err)
			cl.pauseUndecodable(at, err)
		}
		if !pause(cl.ctx, wait) {
			return
		}
	}
}

// reached is the offset behind all that was delivered.
func (cl *claim) reached() int64 {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return max(0, cl.reach, cl.first)
}

func (cl *claim) pauseUndecodable(at int64, err error) {
	cl.mu.Lock()
	tell := !cl.quarantine.paused
	cl.quarantine.paused = true
	if !cl.stopped {
		cl.group.Pause(cl.ref())
	}
	cl.mu.Unlock()
	if tell {
		cl.run.log.Error("einmal: a partition has a batch that cannot be decoded: it waits, and is tried again; the others go on",
			cl.attrs(slog.Int64(attrOffset, at), slog.Any("error", err))...)
	}
}

// examined ends the quarantine. A partition that a limit or a user pauses stays so.
func (cl *claim) examined() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	was := cl.quarantine
	if cl.quarantine = (quarantine{}); was.paused {
		cl.fetchAgain()
	}
}
