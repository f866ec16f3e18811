package consumer

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Windower is implemented by links that refuse messages which are older than a window, because repetitions are not
// known beyond it. 0 is no limit. Run compares the window at its start with how old a message of the topic can be, and
// logs a warning with the arithmetic where it is shorter. A warning, not an error: what is refused does no harm, and is
// not skipped either; and where a topic keeps messages for ever, no window is long enough.
type Windower interface {
	Window() time.Duration
}

// window is the shortest window of the topic's links, or 0.
func (t *topic) window() time.Duration {
	var shortest time.Duration
	for _, h := range t.links {
		if w, ok := h.(Windower); ok {
			if d := w.Window(); d > 0 && (shortest == 0 || d < shortest) {
				shortest = d
			}
		}
	}
	return shortest
}

// retention is what a topic's configuration says about the age of its messages, by the names of Kafka's settings.
type retention map[string]string

// age is a duration, or forever.
type age time.Duration

const forever age = -1

func (a age) String() string {
	if a == forever {
		return "for ever"
	}
	return round(time.Duration(a))
}

// round leaves out what is zero: 168h instead of 168h0m0s.
func round(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// get reads a setting that counts in units. ok is false if the broker does not tell it.
func (r retention) get(name string, unit time.Duration) (a age, ok bool) {
	n, err := strconv.ParseInt(r[name], 10, 64)
	if err != nil {
		return 0, false
	}
	if n < 0 || n > int64(1<<63-1)/int64(unit) {
		return forever, true
	}
	return age(time.Duration(n) * unit), true
}

// defaultCheckInterval is Kafka's log.retention.check.interval.ms.
const defaultCheckInterval = age(5 * time.Minute)

// oldest is how old a message can be when it is delivered, and the sum that says so. Kafka deletes whole segments, when
// the youngest message in one is older than retention.ms; the oldest one in it may be older by segment.ms.
func (r retention) oldest(broker retention) (a age, sum string) {
	if policy := r["cleanup.policy"]; !strings.Contains(policy, "delete") && policy != "" {
		return forever, "cleanup.policy is " + policy + ", so that the last message of each key is kept for ever"
	}
	keep, known := r.get("retention.ms", time.Millisecond)
	if !known {
		return 0, ""
	}
	if keep == forever {
		return forever, "retention.ms is " + r["retention.ms"] + ", so that messages are kept for ever"
	}
	segment, _ := r.get("segment.ms", time.Millisecond)
	check, known := broker.get("log.retention.check.interval.ms", time.Millisecond)
	if !known {
		check = defaultCheckInterval
	}
	if segment == forever || check == forever || keep+segment < 0 || keep+segment+check < 0 {
		return forever, "segment.ms is " + r["segment.ms"] + ", so that a segment which is not full is kept for ever"
	}
	a = keep + segment + check
	return a, fmt.Sprintf("retention.ms %v + segment.ms %v + log.retention.check.interval.ms %v = %v", keep, segment,
		check, a)
}

// shortWindow says by how much the window is too short, or "" if it is not.
func shortWindow(window time.Duration, topic, broker retention, start Start) string {
	oldest, sum := topic.oldest(broker)
	if sum == "" || oldest != forever && age(window) >= oldest {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "messages are refused as too old when they are older than the window, %s, and this topic can have older ones: %s.", round(window), sum)
	b.WriteString(" They are delivered after an outage, or when the group's offsets are reset")
	switch offsets, known := broker.get("offsets.retention.minutes", time.Minute); {
	case !known:
		b.WriteString(" or expire (offsets.retention.minutes is not known).")
	case offsets == forever:
		b.WriteString(".")
	default:
		fmt.Fprintf(&b, " or expire (offsets.retention.minutes %v without a member", offsets)
		if start.oldest() {
			b.WriteString(", then all of the topic comes again")
		}
		b.WriteString(").")
		if age(window) < offsets && (oldest == forever || offsets < oldest) {
			fmt.Fprintf(&b, " Even after an outage of between %s and %v, in which the group keeps its offsets, messages are refused that were never handled.", round(window), offsets)
		}
	}
	if oldest == forever {
		b.WriteString(" Give the topic a retention.ms, leave DedupConfig.Window unset for it, or let the dead letters of refused messages be seen to by hand")
	} else {
		fmt.Fprintf(&b, " Make DedupConfig.Window, and what the table keeps, at least %v; or lower retention.ms and segment.ms", oldest)
	}
	return b.String()
}

// aheadAllowed is what the janitor's margin allows for by default.
const aheadAllowed = age(time.Hour)

// runsAhead says that producers' clocks may be ahead by more than a margin allows for, or "".
func runsAhead(topic retention) string {
	ahead, known := topic.get("message.timestamp.after.max.ms", time.Millisecond)
	if !known || topic["message.timestamp.type"] == "LogAppendTime" || ahead != forever && ahead <= aheadAllowed {
		return ""
	}
	much := "without a limit"
	if ahead != forever {
		much = fmt.Sprintf("by up to %v", ahead)
	}
	return fmt.Sprintf("messages may bear a time to come, %s (message.timestamp.after.max.ms): such a one stays younger than the window for longer than its record is kept, "+
		"and takes effect again if it is delivered then. Set message.timestamp.after.max.ms to %v or message.timestamp.type to LogAppendTime, or keep records for that much longer", much, aheadAllowed)
}
