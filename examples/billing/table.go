package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
)

// figures is what a story came to.
type figures struct {
	Messages   int   // in the topic
	Deliveries int   // times that a worker was given one of them
	Duplicates int   // deliveries that the dedup store recognised
	Kills      int   // workers ended by SIGKILL
	Charges    int   // rows in the table charge
	Doubled    int   // charges of an order beyond its first
	Missing    int   // orders without a charge
	Expected   int64 // cents
	Charged    int64 // cents
}

// exact reports whether every order was charged once, and nothing else was.
func (f figures) exact() bool {
	return f.Doubled == 0 && f.Missing == 0 && f.Charged == f.Expected
}

// column is a story in a table.
type column struct {
	title string // empty if it stands alone
	figures
}

// rows of the table, one figure a line.
var rows = []struct {
	label string
	value func(figures) string
}{
	{"messages", func(f figures) string { return thousands(int64(f.Messages)) }},
	{"deliveries", func(f figures) string { return thousands(int64(f.Deliveries)) }},
	{"duplicates", func(f figures) string { return thousands(int64(f.Duplicates)) }},
	{"kills", func(f figures) string { return thousands(int64(f.Kills)) }},
	{"charges", func(f figures) string { return thousands(int64(f.Charges)) }},
	{"doubled", func(f figures) string { return thousands(int64(f.Doubled)) }},
	{"missing", func(f figures) string { return thousands(int64(f.Missing)) }},
	{"money expected", func(f figures) string { return money(f.Expected) }},
	{"money charged", func(f figures) string { return money(f.Charged) }},
}

// printTable prints the stories side by side.
func printTable(w io.Writer, columns ...column) {
	if columns[0].title != "" {
		fmt.Fprintf(w, "%-16s", "")
		for _, c := range columns {
			fmt.Fprintf(w, "%14s", c.title)
		}
		fmt.Fprintln(w)
	}
	for _, r := range rows {
		fmt.Fprintf(w, "%-16s", r.label)
		for _, c := range columns {
			fmt.Fprintf(w, "%14s", r.value(c.figures))
		}
		fmt.Fprintln(w)
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
