package consumer

import (
	"fmt"
	"strings"
	"time"
)

// DefaultStallTimeout is twice the default processing limit: a single slow message is no stall.
const DefaultStallTimeout = 2 * DefaultProcessingLimit

// Ready is for a readiness probe: true from the first assignment on (an empty one counts: there can be more members
// than partitions), false while the Consumer starts, drains or is out of the group, while the brokers do not know one
// of its topics (Status.Unread), and when for Config.StallTimeout a partition held messages of which none finished, or
// could not be read. Status.NotReady says which. What a user has paused, see Pause, is as it should be, and what waits
// for a database that is away is Degraded instead.
func (c *Consumer) Ready() bool { return c.Status().NotReady == "" }

// notReady returns why the Consumer is not ready, or "".
func (s Status) notReady(now time.Time, stall time.Duration) string {
	unread := s.unread(now, stall)
	switch {
	case s.Phase != Running && unread != "": // without any topic there is no group to be in
		return string(s.Phase) + ": " + unread
	case s.Phase != Running:
		return string(s.Phase) + s.without(NeedCoordinator)
	case unread != "":
		return unread
	}
	for _, p := range s.Partitions {
		// What is not fetched does not count: behind the last record there can be markers of transactions, a lag that stays.
		since := p.Progress
		for _, later := range []time.Time{p.OldestSince, p.OldestDue, p.resumed} {
			if later.After(since) {
				since = later
			}
		}
		if idle := now.Sub(since); idle > stall && p.Held > 0 && p.UserPause == nil && !p.waitsForDatabase() {
			return fmt.Sprintf("%s has messages, and none has finished for %v", partitionName(p.Topic, p.Partition),
				idle.Round(time.Second))
		}
		if unread := now.Sub(p.Unread); p.FetchError != nil && unread > stall {
			return fmt.Sprintf("%s cannot be read for %v: %v", partitionName(p.Topic, p.Partition), unread.Round(time.Second),
				p.FetchError)
		}
	}
	return ""
}

// waitsForDatabase reports whether the partition's messages wait for a database that is away: the Consumer is degraded
// then, and no restart helps.
func (p PartitionStatus) waitsForDatabase() bool {
	return p.Failing != nil && needOf(p.Failing.Err) == NeedDatabase
}

// unread says which topic or partition the brokers do not tell of, or is "".
func (s Status) unread(now time.Time, stall time.Duration) string {
	for _, u := range s.Unread {
		if unread := now.Sub(u.Since); u.Partition < 0 || unread > stall {
			return fmt.Sprintf("%s is not read for %v: %s", u.name(), unread.Round(time.Second), u.Reason)
		}
	}
	return ""
}

// without says why a need is not met, after a phase, or is "".
func (s Status) without(need Need) string {
	for _, d := range s.Degraded {
		if d.Need == need && (s.Phase == Starting || s.Phase == Left) {
			return fmt.Sprintf(": no %s since %s: %v", need, d.Since.UTC().Format(time.RFC3339), d.Err)
		}
	}
	return ""
}

// degraded says what the Consumer is without, or "".
func (s Status) degraded() string {
	if len(s.Degraded) == 0 {
		return ""
	}
	var texts []string
	for _, d := range s.Degraded {
		texts = append(texts, fmt.Sprintf("%s (%s) since %s", d.Need, d.ErrorType, d.Since.UTC().Format(time.RFC3339)))
	}
	return "degraded: " + strings.Join(texts, ", ")
}
