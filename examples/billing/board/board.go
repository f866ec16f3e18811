// Package board is what a process of examples/billing shows to people: tables of its Status, as JSON and as a plain page.
package board

import (
	"html/template"
	"io"
	"time"
)

// Board is what a process shows.
type Board struct {
	Process  string  `json:"process"`
	Link     string  `json:"-"`                   // to its own page, if there is one
	NotReady string  `json:"not_ready,omitempty"` // why, empty if it is ready
	Tables   []Table `json:"tables"`
}

// Table has a head, and rows as wide as it.
type Table struct {
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
}

// Page is the boards of one or more processes.
type Page struct {
	Title  string
	Now    time.Time
	Boards []Board
}

// Write writes p as HTML, which reloads itself every two seconds.
func (p Page) Write(w io.Writer) error { return page.Execute(w, p) }

var page = template.Must(template.New("page").Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="2">
<title>{{.Title}}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin: 1.6em 0 .2em; } h2 span { font-weight: normal; }
table { border-collapse: collapse; margin: .3em 0 .8em; }
caption { text-align: left; color: #666; }
th, td { text-align: left; padding: .1em 1.2em .1em 0; border-bottom: 1px solid #ddd; font-variant-numeric: tabular-nums; }
.ready { color: #08702c; } .not { color: #b3261e; } footer { color: #666; margin-top: 2em; }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
{{range .Boards}}
<h2>{{if .Link}}<a href="{{.Link}}">{{.Process}}</a>{{else}}{{.Process}}{{end}} {{if .NotReady}}<span class="not">not ready: {{.NotReady}}</span>{{else}}<span class="ready">ready</span>{{end}}</h2>
{{range .Tables}}
<table>
<caption>{{.Title}}</caption>
<thead><tr>{{range .Head}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{else}}<tr><td colspan="{{len .Head}}">none</td></tr>
{{end}}</tbody>
</table>
{{end}}
{{end}}
<footer>as of {{.Now.Format "15:04:05"}}; <a href="/metrics">/metrics</a> <a href="/readyz">/readyz</a> <a href="/livez">/livez</a></footer>
</body>
</html>
`))
