// Command drawbars draws the figures of a document's table as bars: the first table behind a line <!-- bars -->, whose
// second column is a number.
//
//	go run ./internal/cmd/drawbars docs/groups.md docs/groups.svg
package main

import (
	"fmt"
	"html"
	"os"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: drawbars DOCUMENT PICTURE")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "drawbars:", err)
		os.Exit(1)
	}
}

func run(document, picture string) error {
	text, err := os.ReadFile(document) //nolint:gosec // of who runs it
	if err != nil {
		return err
	}
	bars, err := read(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", document, err)
	}
	return os.WriteFile(picture, []byte(draw(bars)), 0o644) //nolint:gosec // a picture that anybody may read
}

// bar is a row of the table.
type bar struct {
	label string
	value float64
}

const mark = "<!-- bars -->"

func read(text string) (bars []bar, err error) {
	_, behind, found := strings.Cut(text, mark)
	if !found {
		return nil, fmt.Errorf("there is no line %s", mark)
	}
	for line := range strings.Lines(strings.TrimLeft(behind, "\n")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 2 {
			break
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(cells[1]), 64)
		if err != nil {
			continue // a heading
		}
		bars = append(bars, bar{strings.ReplaceAll(strings.TrimSpace(cells[0]), "`", ""), value})
	}
	if len(bars) == 0 {
		return nil, fmt.Errorf("no number stands in the second column of the table behind %s", mark)
	}
	return bars, nil
}

// Sizes in pixels.
const (
	labels  = 330 // where bars begin
	longest = 330
	row     = 24
)

func draw(bars []bar) string {
	most := 0.0
	for _, b := range bars {
		most = max(most, b.value)
	}
	var s strings.Builder
	width, height := labels+longest+60, len(bars)*row+12
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="13">`+"\n",
		width, height, width, height)
	fmt.Fprintf(&s, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	for i, b := range bars {
		y := 6 + i*row
		long := int(b.value / most * longest)
		fmt.Fprintf(&s, `<text x="%d" y="%d" text-anchor="end" fill="#222222">%s</text><rect x="%d" y="%d" width="%d" height="%d" fill="%s"/><text x="%d" y="%d" fill="#222222">%s</text>`+"\n",
			labels-8, y+16, html.EscapeString(b.label), labels, y+3, long, row-6, colour(b.label), labels+long+6, y+16,
			strconv.FormatFloat(b.value, 'f', 2, 64))
	}
	return s.String() + "</svg>\n"
}

// colour tells what is written by hand from the rest.
func colour(label string) string {
	if strings.Contains(label, "loop") {
		return "#9a9a9a"
	}
	return "#3274d9"
}
