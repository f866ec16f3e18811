package story

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/einmal-go/einmal/audit"
)

// Figures is what a story came to.
type Figures struct {
	Requests    int   // that customers made
	Expected    int64 // cents that they cost
	Sent        int   // HTTP requests to the order service
	Replayed    int   // answers to them that had been given before
	LostAnswers int   // of the order service and the provider, though all was committed
	Deliveries  int   // times that a consumer was given a message
	Duplicates  int   // of them: recognised by the dedup stores
	Kills       int   // processes ended by SIGKILL
	Ledgers     [4]Ledger
	Audits      []*audit.Report // of the topics, in the order of hops; none if nobody has kept records
}

// Ledger is what a table comes to in which each request must stand once.
type Ledger struct {
	Rows    int
	Doubled int   // rows of a request beyond its first
	Missing int   // requests without a row
	Cents   int64 // of all rows
}

// Exact reports whether each request was taken, charged, paid and receipted once, and nothing else was; and whether the
// audits say so too.
func (f Figures) Exact() bool {
	for _, r := range f.Audits {
		if !r.Clean() || r.Recorded != int64(f.Requests) || r.Events != r.Recorded {
			return false
		}
	}
	for _, l := range f.Ledgers {
		if l.Doubled != 0 || l.Missing != 0 || l.Rows != f.Requests || l.Cents != f.Expected {
			return false
		}
	}
	return true
}

func (f Figures) doubled() (n int) {
	for _, l := range f.Ledgers {
		n += l.Doubled
	}
	return n
}

func (f Figures) missing() (n int) {
	for _, l := range f.Ledgers {
		n += l.Missing
	}
	return n
}

// paid is what the customers paid: the provider's charges.
func (f Figures) paid() Ledger { return f.Ledgers[2] }

// column is a story in a table.
type column struct {
	title string // empty if it stands alone
	Figures
}

// row is a figure, a line of the table.
type row struct {
	label string
	value func(Figures) string
}

func number(label string, n func(Figures) int) row {
	return row{label, func(f Figures) string { return thousands(int64(n(f))) }}
}

func rows() []row {
	list := []row{
		number("requests", func(f Figures) int { return f.Requests }),
		number("sent", func(f Figures) int { return f.Sent }),
		number("answers replayed", func(f Figures) int { return f.Replayed }),
		number("answers lost", func(f Figures) int { return f.LostAnswers }),
		number("deliveries", func(f Figures) int { return f.Deliveries }),
		number("duplicates", func(f Figures) int { return f.Duplicates }),
		number("kills", func(f Figures) int { return f.Kills }),
	}
	for i, l := range ledgers {
		list = append(list, number(l.title, func(f Figures) int { return f.Ledgers[i].Rows }))
	}
	return append(list,
		number("doubled", Figures.doubled),
		number("missing", Figures.missing),
		row{"money expected", func(f Figures) string { return money(f.Expected) }},
		row{"money charged", func(f Figures) string { return money(f.paid().Cents) }},
	)
}

// printTable prints the stories side by side.
func printTable(w io.Writer, columns ...column) {
	if columns[0].title != "" {
		fmt.Fprintf(w, "%-18s", "")
		for _, c := range columns {
			fmt.Fprintf(w, "%14s", c.title)
		}
		fmt.Fprintln(w)
	}
	for _, r := range rows() {
		fmt.Fprintf(w, "%-18s", r.label)
		for _, c := range columns {
			fmt.Fprintf(w, "%14s", r.value(c.Figures))
		}
		fmt.Fprintln(w)
	}
}

// printAudits prints what package audit has found, a column for each topic.
func printAudits(w io.Writer, reports []*audit.Report) {
	line := func(label string, value func(r *audit.Report) string) {
		fmt.Fprintf(w, "%-26s", label)
		for _, r := range reports {
			fmt.Fprintf(w, "%18s", value(r))
		}
		fmt.Fprintln(w)
	}
	line("audit", func(r *audit.Report) string { return r.Topic[strings.Index(r.Topic, ".")+1:] })
	line("messages", func(r *audit.Report) string { return thousands(r.Messages) })
	line("events", func(r *audit.Report) string { return thousands(r.Events) })
	line("recorded", func(r *audit.Report) string { return thousands(r.Recorded) })
	line("effects", func(r *audit.Report) string { return thousands(r.Effects) })
	for _, kind := range append(audit.Findings(), audit.Repeated) {
		line(strings.ReplaceAll(string(kind), "_", " "),
			func(r *audit.Report) string { return thousands(r.Found[kind].Count) })
	}
}

// money writes cents as 1,234.56.
func money(cents int64) string {
	sign := ""
	if cents < 0 {
		sign, cents = "-", -cents
	}
	return fmt.Sprintf("%s%s.%02d", sign, thousands(cents/100), cents%100)
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	if n < 0 {
		return "-" + thousands(-n)
	}
	digits := strconv.FormatInt(n, 10)
	var groups []string
	for len(digits) > 3 {
		groups = append([]string{digits[len(digits)-3:]}, groups...)
		digits = digits[:len(digits)-3]
	}
	return strings.Join(append([]string{digits}, groups...), ",")
}
