package consumer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// A doubt is about settings that do not contradict each other, and that hardly anybody means together. The start logs
// it.
type doubt struct {
	topic string // "" for all
	text  string
}

// longDrain is the longest DrainTimeout that is taken for meant: platforms kill a process sooner by default.
const longDrain = time.Minute

// attemptLimiter is a link that ends an attempt after a time of its own.
type attemptLimiter interface{ AttemptTimeout() time.Duration }

// storeIdler is a link whose transactions are ended when nothing is asked in them for a time, 0 for none.
type storeIdler interface{ StoreIdleTimeout() time.Duration }

// validateTimeouts refuses a time-out of an attempt that comes to nothing.
func (t *topic) validateTimeouts() error {
	for _, h := range t.links {
		if l, ok := h.(attemptLimiter); ok && t.limit > 0 && l.AttemptTimeout() > t.limit {
			return fmt.Errorf("middleware.Timeout is %v, but Topic.ProcessingLimit is %v and ends each attempt before it (%v by default): make the first shorter or the second longer",
				l.AttemptTimeout(), t.limit, DefaultProcessingLimit)
		}
	}
	return nil
}

// doubts returns those about the configuration.
func (c *Consumer) doubts() (found []doubt) {
	add := func(topic, format string, args ...any) {
		found = append(found, doubt{topic, fmt.Sprintf("einmal: "+format, args...)})
	}
	if c.cfg.DrainTimeout > longDrain {
		add("", "Config.DrainTimeout is %v, so a stop may take as long: most platforms kill a process sooner (Kubernetes after terminationGracePeriodSeconds, 30 s by default), "+
			"and what it had not finished is repeated; make it shorter, or give the process more time than that",
			c.cfg.DrainTimeout)
	}
	if !c.records() {
		add("", "no chain has a Dedup: what handlers do is done again when messages are delivered again, after each crash and some rebalances; "+
			"put them into middleware.Dedup; a handler that may be repeated says so by a method Link() consumer.Link that returns consumer.LinkDedup")
	}
	for _, name := range slices.Sorted(maps.Keys(c.topics)) {
		for _, text := range c.topics[name].doubts(c.cfg.DrainTimeout) {
			add(name, "%s", text)
		}
	}
	return found
}

// records reports whether a chain has a link that records effects.
func (c *Consumer) records() bool {
	for _, t := range c.topics {
		for _, h := range t.links {
			if l, ok := h.(Linker); ok && l.Link() == LinkDedup {
				return true
			}
		}
	}
	return false
}

// doubts returns those about one topic.
func (t *topic) doubts(drain time.Duration) (found []string) {
	limit, timeout, idle := t.limitGiven, time.Duration(0), time.Duration(0)
	for _, h := range t.links {
		if l, ok := h.(attemptLimiter); ok {
			timeout = max(timeout, l.AttemptTimeout())
		}
		if s, ok := h.(storeIdler); ok && s.StoreIdleTimeout() > 0 && (idle == 0 || s.StoreIdleTimeout() < idle) {
			idle = s.StoreIdleTimeout()
		}
	}
	if timeout > drain {
		found = append(found, fmt.Sprintf("middleware.Timeout is %v, but Config.DrainTimeout is %v: a handler that takes so long is cut short by each stop, and by each rebalance, and begins anew; "+
			"make the first shorter, or the second longer", timeout, drain))
	}
	if idle > 0 && limit > idle {
		found = append(found, fmt.Sprintf("Topic.ProcessingLimit is %v, but the store's IdleTimeout is %v: the server ends the transaction of a handler that leaves it alone for so long, during a call for example; "+
			"make the first shorter, or the second longer", limit, idle))
	}
	if idle > 0 && timeout > idle {
		found = append(found, fmt.Sprintf("middleware.Timeout is %v, but the store's IdleTimeout is %v: the server ends the transaction of a handler that leaves it alone for so long, during a call for example; "+
			"make the first shorter, or the second longer", timeout, idle))
	}
	return found
}

// logDoubts writes a line for each.
func (c *Consumer) logDoubts(log *slog.Logger) {
	for _, d := range c.doubts() {
		if d.topic == "" {
			log.Warn(d.text)
			continue
		}
		log.Warn(d.text, slog.String(attrTopic, d.topic))
	}
}

// tellNoKey says, once, that messages without a key come in KeyOrder.
func (cl *claim) tellNoKey(offset int64) {
	if cl.topic.noKeyTold.CompareAndSwap(false, true) {
		cl.run.log.Warn("einmal: a message has no key, and Topic.Order is KeyOrder: messages without a key are handled in any order; "+
			"let the producer set keys, or use PartitionOrder (or Unordered, if any order will do)",
			cl.attrs(slog.Int64(attrOffset, offset))...)
	}
}
