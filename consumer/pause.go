package consumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
)

// PauseRequest says what Consumer.Pause pauses, who asks for it, and why.
type PauseRequest struct {
	// Topic is one of Config.Topics. Required.
	Topic string

	// Partitions are those of the topic that are paused. Default: all of them, those that are added later included.
	Partitions []int32

	// By says who pauses: a person, or the name of a part of the service. Required, at most 256 bytes.
	By string

	// Why is the reason, for those who find the pause. Required, at most 1,024 bytes.
	Why string

	// Until is when the pause ends by itself. Default: it lasts until Resume is called, or the process ends.
	Until time.Time
}

const (
	maxPauseBy  = 256
	maxPauseWhy = 1024
)

// Pause is a pause that a user has asked for.
type Pause struct {
	Topic     string
	Partition int32 // -1 if it is the whole topic
	By        string
	Why       string
	Since     time.Time
	Until     time.Time // zero if it lasts until Resume is called
}

// Pause has no message of a topic, or of some of its partitions, begun until Resume is called or PauseRequest.Until is
// over. Messages in work finish; those that wait for their next attempt go on waiting; nothing more is fetched. The
// process stays in the group with all its partitions, is as Ready as before, and can be stopped. Messages of a store's
// group that wait behind one which has failed stay in work.
//
// A pause is this process's, and lasts as long as it. It holds for a partition each time this process has it, but not
// while another process does: call Pause in all of them. A second Pause of the same topic or partition takes the place
// of the first one; one of a topic and one of a partition of it hold side by side. Pause may be called at any time,
// before Run too, from any goroutine. Status shows who has paused what. The error says what is wrong with req.
func (c *Consumer) Pause(req PauseRequest) error {
	now := time.Now()
	if err := c.checkPause(&req, now); err != nil {
		return err
	}
	for _, partition := range placesOf(req.Partitions) {
		p := &Pause{
			Topic: req.Topic, Partition: partition, Since: now, Until: req.Until,
			By: redact.Text(req.By, maxPauseBy), Why: redact.Text(req.Why, maxPauseWhy),
		}
		c.userPauses.set(p, func() { c.pauseOver(p) })
		c.cfg.Logger.Warn("einmal: paused by a user, no message is begun until that is over", p.attrs(c.cfg.Group)...)
	}
	c.syncPauses(req.Topic)
	return nil
}

// Resume ends pauses before their time: of a topic and of all its partitions, or of the partitions that are named. What
// waits is handled at once. The error says so if nothing of it was paused, or if a partition is paused because its
// topic is.
func (c *Consumer) Resume(topic string, partitions ...int32) error {
	if err := c.checkPlaces(topic, partitions); err != nil {
		return err
	}
	if len(partitions) > 0 && c.userPauses.has(topic, wholeTopic) {
		return fmt.Errorf("einmal: cannot resume a partition of topic %q: the whole topic is paused: resume the topic, and pause the partitions that are to stay so", topic)
	}
	over := c.userPauses.remove(topic, partitions)
	if len(over) == 0 {
		return fmt.Errorf("einmal: nothing to resume: %s is not paused in this process", placesName(topic, partitions))
	}
	for _, p := range over {
		c.cfg.Logger.Info("einmal: resumed by a user", p.attrs(c.cfg.Group)...)
	}
	c.syncPauses(topic)
	return nil
}

// wholeTopic is the Pause.Partition of a pause of all partitions.
const wholeTopic = -1

// placesOf are the places of a request in userPauses.
func placesOf(partitions []int32) []int32 {
	if len(partitions) == 0 {
		return []int32{wholeTopic}
	}
	return slices.Compact(slices.Sorted(slices.Values(partitions)))
}

func placesName(topic string, partitions []int32) string {
	if len(partitions) == 0 {
		return fmt.Sprintf("topic %q", topic)
	}
	names := make([]string, len(partitions))
	for i, p := range partitions {
		names[i] = partitionName(topic, p)
	}
	return strings.Join(names, ", ")
}

// checkPause says what is wrong with a request.
func (c *Consumer) checkPause(req *PauseRequest, now time.Time) error {
	errs := []error{c.checkPlaces(req.Topic, req.Partitions)}
	for _, text := range []struct {
		field, value, say string
		most              int
	}{
		{"By", req.By, "say who pauses, so that others know whom to ask", maxPauseBy},
		{"Why", req.Why, "give a reason, so that others know when it is over", maxPauseWhy},
	} {
		switch {
		case strings.TrimSpace(text.value) == "":
			errs = append(errs, fmt.Errorf("einmal: PauseRequest.%s is empty: %s", text.field, text.say))
		case len(text.value) > text.most:
			errs = append(errs, fmt.Errorf("einmal: PauseRequest.%s has %d bytes: use at most %d", text.field, len(text.value),
				text.most))
		}
	}
	if !req.Until.IsZero() && !req.Until.After(now) {
		errs = append(errs, fmt.Errorf("einmal: PauseRequest.Until is %s, which is over: give a later time, or none",
			req.Until.Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}

// checkPlaces says whether there are such a topic and such partitions, as far as the brokers have told.
func (c *Consumer) checkPlaces(topic string, partitions []int32) error {
	if c.topics[topic] == nil {
		return fmt.Errorf("einmal: topic %q is not in Config.Topics: use one of %s", topic,
			strings.Join(slices.Sorted(maps.Keys(c.topics)), ", "))
	}
	var known []int32
	if client := c.cluster.Load(); client != nil {
		known, _ = client.Partitions(topic) // not known, then
	}
	for _, p := range partitions {
		if p < 0 || len(known) > 0 && !slices.Contains(known, p) {
			return fmt.Errorf("einmal: topic %q has no partition %d: it has %s", topic, p,
				cmp.Or(countOf(known), "numbers from 0 on"))
		}
	}
	return nil
}

// countOf says which partitions there are, or is "".
func countOf(known []int32) string {
	if len(known) == 0 {
		return ""
	}
	return fmt.Sprintf("%d to %d", slices.Min(known), slices.Max(known))
}

// pauseOver ends a pause whose time is over.
func (c *Consumer) pauseOver(p *Pause) {
	if !c.userPauses.drop(p) {
		return // another one took its place, or it was resumed
	}
	if c.currentPhase() != Stopped {
		c.cfg.Logger.Info("einmal: the time of a pause is over, messages are handled again", p.attrs(c.cfg.Group)...)
	}
	c.syncPauses(p.Topic)
}

// attrs are those of a line about the pause.
func (p *Pause) attrs(group string) []any {
	attrs := []any{slog.String(attrGroup, group), slog.String(attrTopic, p.Topic)}
	if p.Partition != wholeTopic {
		attrs = append(attrs, partitionAttr(p.Partition))
	}
	attrs = append(attrs, slog.String("by", p.By), slog.String("why", p.Why), slog.Time("since", p.Since))
	if !p.Until.IsZero() {
		attrs = append(attrs, slog.Time("until", p.Until))
	}
	return attrs
}

// syncPauses brings the claims of a topic in line with what is paused.
func (c *Consumer) syncPauses(topic string) {
	for _, cl := range c.allClaims() {
		if cl.topic.name == topic {
			cl.syncPause()
		}
	}
}

// syncPause brings the claim in line with what is paused. It reads that under the lock, so that whichever call comes
// last is right.
func (cl *claim) syncPause() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	was := cl.userPause
	cl.userPause = cl.run.userPauses.of(cl.topic.name, cl.partition)
	switch {
	case cl.stopped:
	case was == nil && cl.userPause != nil:
		cl.group.Pause(cl.ref())
	case was != nil && cl.userPause == nil:
		cl.resumedAt = time.Now()
		cl.fetchAgain()
		cl.dispatch()
	}
}

// fetchAgain ends the pause of the partition's fetches, if nothing asks for one any more: a limit, a user, or a batch
// that cannot be decoded. It is called under the lock.
func (cl *claim) fetchAgain() {
	if cl.pausedBy == "" && cl.userPause == nil && !cl.quarantine.paused && !cl.stopped {
		cl.group.Resume(cl.ref())
	}
}

// userPauses are the pauses that users have asked for, by topic and partition. It is safe for concurrent use. Its lock
// may be taken under a claim's.
type userPauses struct {
	mu sync.Mutex
	by map[string]map[int32]*userPause
}

// userPause is a pause, and what ends it.
type userPause struct {
	*Pause
	timer *time.Timer // nil if nothing does
}

// set adds p in the place of one that is there. over is called when its time is over.
func (u *userPauses) set(p *Pause, over func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.take(p.Topic, p.Partition)
	if u.by == nil {
		u.by = map[string]map[int32]*userPause{}
	}
	if u.by[p.Topic] == nil {
		u.by[p.Topic] = map[int32]*userPause{}
	}
	added := &userPause{Pause: p}
	if !p.Until.IsZero() {
		added.timer = time.AfterFunc(time.Until(p.Until), over)
	}
	u.by[p.Topic][p.Partition] = added
}

// take removes and returns a pause, nil if there is none. It is called under the lock.
func (u *userPauses) take(topic string, partition int32) *Pause {
	old := u.by[topic][partition]
	if old == nil {
		return nil
	}
	if old.timer != nil {
		old.timer.Stop()
	}
	delete(u.by[topic], partition)
	return old.Pause
}

// drop removes p, and reports whether it was there.
func (u *userPauses) drop(p *Pause) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if now := u.by[p.Topic][p.Partition]; now == nil || now.Pause != p {
		return false
	}
	return u.take(p.Topic, p.Partition) != nil
}

// remove removes the pauses of the partitions, or all of the topic if none is named, and returns them.
func (u *userPauses) remove(topic string, partitions []int32) (removed []*Pause) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(partitions) == 0 {
		partitions = slices.Sorted(maps.Keys(u.by[topic]))
	}
	for _, partition := range partitions {
		if p := u.take(topic, partition); p != nil {
			removed = append(removed, p)
		}
	}
	return removed
}

func (u *userPauses) has(topic string, partition int32) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.by[topic][partition] != nil
}

// of returns the pause that holds for a partition, its own before that of its topic, or nil.
func (u *userPauses) of(topic string, partition int32) *Pause {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, place := range []int32{partition, wholeTopic} {
		if p := u.by[topic][place]; p != nil {
			return p.Pause
		}
	}
	return nil
}

// list returns all of them, by topic and partition.
func (u *userPauses) list() (all []Pause) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, of := range u.by {
		for _, p := range of {
			all = append(all, *p.Pause)
		}
	}
	slices.SortFunc(all, func(a, b Pause) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return all
}
