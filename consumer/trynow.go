package consumer

import (
	"fmt"
	"log/slog"
	"time"
)

// TryNow makes the next attempt at a parked message begin at once, instead of when it was to be: when what it needs was
// repaired, say. The attempt is one as any other: it counts, it takes a worker, and what is ordered behind the message
// goes on waiting for it. A message that says itself that it is not due, see NotBefore, is parked again.
//
// The error says why there is nothing to try: this process does not hold the partition, the partition is paused, or the
// message is not parked, because it is in work, waits behind another one, or has finished.
func (c *Consumer) TryNow(topic string, partition int32, offset int64) error {
	if err := c.checkPlaces(topic, []int32{partition}); err != nil {
		return err
	}
	for _, cl := range c.allClaims() {
		if cl.topic.name != topic || cl.partition != partition {
			continue
		}
		if err := cl.tryNow(offset); err != nil {
			return fmt.Errorf("einmal: cannot try %s@%d now: %w", partitionName(topic, partition), offset, err)
		}
		cl.run.log.Info("einmal: a parked message is tried now, as a user asked", cl.attrs(slog.Int64(attrOffset, offset))...)
		return nil
	}
	return fmt.Errorf("einmal: cannot try %s@%d now: this process does not hold the partition: ask the process that does",
		partitionName(topic, partition), offset)
}

func (cl *claim) tryNow(offset int64) error {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	switch {
	case cl.stopped:
		return fmt.Errorf("this process is letting go of the partition: ask the next one that holds it")
	case cl.userPause != nil:
		return fmt.Errorf("the partition is paused (by %s): resume it first", cl.userPause.By)
	}
	for it, timer := range cl.parked {
		if it.offset != offset {
			continue
		}
		if timer == nil {
			return fmt.Errorf("its Topic.OnFailure is Stop, and the Consumer is stopping: restart the process")
		}
		timer.Stop()
		cl.unparked(it)
		return nil
	}
	return fmt.Errorf("it is not parked: %s", cl.whereIs(offset))
}

// whereIs says why a message is not parked. It is called under the lock.
func (cl *claim) whereIs(offset int64) string {
	for _, it := range cl.running {
		if it.offset == offset {
			return fmt.Sprintf("it is in work for %v", time.Since(it.started).Round(time.Millisecond))
		}
	}
	for it := cl.open.oldest; it != nil; it = it.newer {
		if it.offset == offset {
			return "it waits for a worker, or behind another message"
		}
	}
	if offset >= cl.reach {
		return "it was not fetched yet"
	}
	return "it has finished, or the log does not have it"
}
