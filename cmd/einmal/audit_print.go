package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/einmal-go/einmal/audit"
)

// titles are what findings are called in tables.
var titles = map[audit.Kind]string{
	audit.Lost:                 "lost",
	audit.DoubledEffects:       "doubled effects",
	audit.EffectsWithoutRecord: "effects without a record",
	audit.RecordsWithoutEffect: "records without an effect",
	audit.DifferentValues:      "ids with different values",
	audit.CommittedTooFar:      "partitions committed too far",
	audit.Unreadable:           "unreadable places",
	audit.Repeated:             "repeated in the topic",
	audit.WithoutID:            "without id",
	audit.Missing:              "missing in the topic",
	audit.OutOfOrder:           "behind a later one of the key",
	audit.WithoutRow:           "without a row",
}

// table writes lines of columns.
func table(to io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(to, 0, 8, 2, ' ', 0) }

// printFound writes the counts of these kinds to the table that has begun, and the examples behind it.
func (f *auditFlags) printFound(to io.Writer, w *tabwriter.Writer, kinds []audit.Kind, found audit.Found) error {
	fmt.Fprintln(w, "\nfound\tcount")
	for _, kind := range kinds {
		fmt.Fprintf(w, "%s\t%d\n", titles[kind], found[kind].Count)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, kind := range kinds {
		f.printExamples(to, titles[kind], found[kind])
	}
	return nil
}

// printExamples lists them, each on a line.
func (f *auditFlags) printExamples(to io.Writer, title string, found *audit.Finding) {
	if len(found.Examples) == 0 {
		return
	}
	fmt.Fprintf(to, "\n%s:\n", title)
	for _, e := range found.Examples {
		var about []string
		if e.Event != "" {
			about = append(about, fmt.Sprintf("%q", plain(e.Event)))
		}
		for _, p := range e.Places {
			about = append(about, placeText(p, f.values))
		}
		if e.Times > 0 {
			about = append(about, fmt.Sprintf("%d times", e.Times))
		}
		if e.Problem != "" {
			about = append(about, plain(e.Problem))
		}
		fmt.Fprintf(to, "  %s\n", strings.Join(about, ", "))
	}
	if more := found.Count - int64(len(found.Examples)); more > 0 {
		fmt.Fprintf(to, "  and %d more: -v lists all\n", more)
	}
}

func placeText(p audit.Place, values bool) string {
	text := fmt.Sprintf("partition %d offset %d", p.Partition, p.Offset)
	if !p.Time.IsZero() {
		text += " of " + p.Time.Format(time.RFC3339)
	}
	if values {
		text += fmt.Sprintf(" key %q value %q", p.Key, p.Value)
	}
	return text
}

// byPartition sorts what was read.
func byPartition[T any](list []T, partition func(T) int32) {
	slices.SortFunc(list, func(a, b T) int { return cmp.Compare(partition(a), partition(b)) })
}
