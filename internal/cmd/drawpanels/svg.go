package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
	"time"
)

const (
	cell    = 50 // of the grid's columns
	line    = 26 // of its rows
	head    = 56
	legends = 3 // lines below a panel
)

var colours = []string{"#3274d9", "#e0752d", "#37872d", "#8f3bb8", "#c4162a", "#b8a900", "#1f8a8a", "#888888"}

// canvas collects what is drawn.
type canvas struct {
	from, to float64
	b        strings.Builder
	height   int
}

// draw draws a panel where the dashboard has it.
func (c *canvas) draw(p *panel, all []series) {
	x, y, w, h := p.GridPos.X*cell, head+p.GridPos.Y*line, p.GridPos.W*cell, p.GridPos.H*line
	c.height = max(c.height, y+h)
	if p.Type == "row" {
		fmt.Fprintf(&c.b, `<text x="%d" y="%d" class="row">%s</text>`+"\n", x+6, y+19, html.EscapeString(p.Title))
		return
	}
	fmt.Fprintf(&c.b, `<rect x="%d" y="%d" width="%d" height="%d" class="panel"/><text x="%d" y="%d" class="title">%s</text>`+"\n",
		x+4, y+4, w-8, h-8, x+12, y+20, html.EscapeString(p.Title))
	if len(all) == 0 {
		fmt.Fprintf(&c.b, `<text x="%d" y="%d" class="none">nothing in this time</text>`+"\n", x+w/2-55, y+h/2)
		return
	}
	unit := p.FieldConfig.Defaults.Unit
	if p.Type == "stat" {
		c.stat(all, unit, x, y, w)
		return
	}
	c.lines(all, unit, x+60, y+30, w-76, h-46-legends*13)
	c.legend(all, x+12, y+h-12-(min(len(all), legends)-1)*13)
}

// stat writes the last values.
func (c *canvas) stat(all []series, unit string, x, y, w int) {
	for i, s := range all[:min(len(all), 5)] {
		last := "-"
		if n := len(s.points); n > 0 {
			last = shown(s.points[n-1][1], unit)
		}
		fmt.Fprintf(&c.b, `<text x="%d" y="%d" class="value">%s</text><text x="%d" y="%d" class="legend">%s</text>`+"\n",
			x+12, y+46+i*25, last, x+75, y+45+i*25, html.EscapeString(short(s.name, (w-90)/6)))
	}
}

// lines draws the series from 0 to the largest value.
func (c *canvas) lines(all []series, unit string, x, y, w, h int) {
	top := 0.0
	for _, s := range all {
		for _, p := range s.points {
			top = math.Max(top, p[1])
		}
	}
	if top == 0 {
		top = 1
	}
	for i := range 3 {
		at := y + h - i*h/2
		fmt.Fprintf(&c.b, `<line x1="%d" y1="%d" x2="%d" y2="%d" class="grid"/><text x="%d" y="%d" class="axis">%s</text>`+
			"\n", x, at, x+w, at, x-6, at+4, shown(top*float64(i)/2, unit))
	}
	for i, s := range all {
		var path strings.Builder
		before := math.Inf(-1)
		for _, p := range s.points {
			command := "L"
			if p[0]-before > (c.to-c.from)/60 { // a gap
				command = "M"
			}
			before = p[0]
			fmt.Fprintf(&path, "%s%.1f %.1f", command, float64(x)+(p[0]-c.from)/(c.to-c.from)*float64(w),
				float64(y+h)-p[1]/top*float64(h))
		}
		fmt.Fprintf(&c.b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.4"/>`+"\n", path.String(),
			colours[i%len(colours)])
	}
}

// legend names the first few series.
func (c *canvas) legend(all []series, x, y int) {
	for i, s := range all[:min(len(all), legends)] {
		name := short(s.name, 55)
		if rest := len(all) - legends; i == legends-1 && rest > 0 {
			name += fmt.Sprintf(" (and %d more)", rest)
		}
		fmt.Fprintf(&c.b, `<rect x="%d" y="%d" width="10" height="3" fill="%s"/><text x="%d" y="%d" class="legend">%s</text>`+
			"\n",
			x, y+i*13-4, colours[i%len(colours)], x+15, y+i*13, html.EscapeString(name))
	}
}

func short(name string, n int) string {
	if r := []rune(name); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return name
}

// shown writes a value with its unit.
func shown(v float64, unit string) string {
	switch unit {
	case "s":
		return time.Duration(v * float64(time.Second)).Round(time.Millisecond).String()
	case "percentunit":
		return fmt.Sprintf("%.3g %%", 100*v)
	case "bytes":
		return fmt.Sprintf("%.3g kB", v/1000)
	case "ops", "reqps":
		return fmt.Sprintf("%.3g/s", v)
	default:
		return fmt.Sprintf("%.4g", v)
	}
}

const style = `text{font-family:system-ui,sans-serif;fill:#222}.row{font-size:16px;font-weight:600}.panel{fill:#fff;stroke:#d8d8d8}.title{font-size:12px;font-weight:600}` +
	`.legend{font-size:10px;fill:#555}.axis{font-size:9px;fill:#777;text-anchor:end}.grid{stroke:#eee}.value{font-size:17px;fill:#1f60c4}.none{font-size:11px;fill:#999}.head{font-size:18px;font-weight:600}.note{font-size:11px;fill:#555}`

func (c *canvas) write(out io.Writer, title, note string) error {
	_, err := fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"><style>%s</style><rect width="100%%" height="100%%" fill="#f4f5f5"/>`+
		`<text x="8" y="24" class="head">%s</text><text x="8" y="44" class="note">%s</text>`+"\n%s</svg>\n",
		24*cell, c.height+8, style, html.EscapeString(title), html.EscapeString(note), c.b.String())
	return err
}
