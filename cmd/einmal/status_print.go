package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/internal/statusfacts"
)

// print shows the report as a table. What comes from the service is kept from the terminal's control.
func (r *statusReport) print(to io.Writer, problems []string) error {
	var b bytes.Buffer
	health := "healthy"
	if len(problems) > 0 {
		health = "not healthy"
	}
	fmt.Fprintf(&b, "%s, as of %s\n", health, r.Time.Format(time.RFC3339))
	for _, name := range r.names() {
		fmt.Fprintf(&b, "\n%s: ", plain(name))
		switch a := r.Sections[name]; {
		case a.Error != "":
			fmt.Fprintf(&b, "no status: %s\n", plain(a.Error))
		case r.Consumers[name] != nil:
			printConsumer(&b, r.Consumers[name])
		case r.Outboxes[name] != nil:
			printOutbox(&b, r.Outboxes[name])
		case r.Dead[name] != nil:
			printDeadLetters(&b, r.Dead[name])
		default:
			printOwn(&b, a.Value)
		}
	}
	if len(problems) > 0 {
		b.WriteString("\nproblems:\n")
		for _, p := range problems {
			fmt.Fprintf(&b, "  %s\n", plain(p))
		}
	}
	_, err := to.Write(b.Bytes())
	return err
}

func printConsumer(b *bytes.Buffer, c *statusfacts.Consumer) {
	fmt.Fprintf(b, "consumer, %s, %s, partitions %d\n", plain(c.Phase), cmp.Or(plain(c.NotReady), "ready"),
		len(c.Partitions))
	if len(c.Partitions) == 0 {
		return
	}
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "  topic\tpartition\tlag\theld\trunning\tparked\toldest open\tcommittable\tnote")
	for _, p := range c.Partitions {
		oldest := "-"
		if p.Oldest != nil {
			oldest = fmt.Sprintf("@%d %s", p.Oldest.Offset, ago(p.Oldest.Seconds))
		}
		var notes []string
		if p.Paused {
			notes = append(notes, pausedNote(p.PausedBy))
		}
		if u := p.UserPause; u != nil {
			notes = append(notes, fmt.Sprintf("paused by %s: %s", plain(u.By), plain(u.Why)))
		}
		if f := p.Failing; f != nil {
			notes = append(notes, fmt.Sprintf("@%d failed %d times (%s)", f.Offset, f.Attempts, plain(f.ErrorType)))
		}
		if p.FetchError != "" {
			notes = append(notes, "cannot be read: "+plain(p.FetchError))
		}
		fmt.Fprintf(w, "  %s\t%d\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", plain(p.Topic), p.Partition, number(p.Lag), p.Held,
			p.Running, p.Parked, oldest, number(p.Next), strings.Join(notes, ", "))
	}
	_ = w.Flush() // to memory
}

// pausedNote says which limit has paused a partition, if the service tells.
func pausedNote(by string) string {
	if by == "" {
		return "paused"
	}
	return "paused: " + plain(by)
}

func number(n *int64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

func printOutbox(b *bytes.Buffer, o *statusfacts.Outbox) {
	state := "stopped"
	switch {
	case o.Paused:
		state = "Kafka is away"
	case o.Running && o.Trouble != "":
		state = "runs, and does not do its work"
	case o.Running:
		state = "running"
	}
	fmt.Fprintf(b, "outbox, relay %s, %s, %s\n", plain(o.Name), plain(o.Mode), state)
	about, as := "", ""
	if o.Estimated {
		about = "about "
	}
	switch {
	case o.Seen == nil:
		as = " (the table was not looked at yet)"
	case !o.Fresh:
		as = " (as of " + o.Seen.Format(time.RFC3339) + ")"
	}
	fmt.Fprintf(b, "  backlog %s%d, oldest %s, blocked %d, in flight %d%s, published %d, now %.1f/s\n",
		about, o.Backlog, ago(o.OldestSeconds), o.Blocked, o.InFlight, as, o.Published, o.PerSecond)
	if o.LastError != "" {
		fmt.Fprintf(b, "  last error: %s\n", plain(o.LastError))
	}
}

func printDeadLetters(b *bytes.Buffer, d *statusfacts.DeadLetters) {
	fmt.Fprintf(b, "dead letters %d", d.Total)
	for i, kind := range slices.Sorted(maps.Keys(d.Kinds)) {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		fmt.Fprintf(b, "%s%s %d", separator, plain(kind), d.Kinds[kind])
	}
	b.WriteByte('\n')
}

// printOwn shows a section of the service's own as JSON.
func printOwn(b *bytes.Buffer, value json.RawMessage) {
	var line bytes.Buffer
	if json.Compact(&line, value) != nil {
		line.WriteString("null")
	}
	fmt.Fprintf(b, "%s\n", plain(string(redact.Strings(line.Bytes()))))
}

// printStatusJSON has the service's report as it came, but for what looks like a secret.
func printStatusJSON(to io.Writer, report json.RawMessage, problems []string) error {
	shown := make([]string, len(problems))
	for i, p := range problems {
		shown[i] = plain(p)
	}
	return printJSON(to, struct {
		Healthy  bool            `json:"healthy"`
		Problems []string        `json:"problems"`
		Report   json.RawMessage `json:"report"`
	}{len(problems) == 0, shown, redact.Strings(report)}, indentedJSON)
}
