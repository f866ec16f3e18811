// Command drawpanels draws the panels of a Grafana dashboard from what a Prometheus has, as SVG: for a picture in the
// documentation where there is no Grafana. It is not what Grafana shows, but the same expressions in the same order.
//
//	go run ./internal/cmd/drawpanels -prometheus http://127.0.0.1:9090 -since 20m docs/dashboards/einmal.json > docs/dashboards/einmal.svg
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	server := flag.String("prometheus", "http://127.0.0.1:9090", "the `URL` of Prometheus")
	since := flag.Duration("since", time.Hour, "how much of the past is drawn")
	note := flag.String("note", "", "a `line` about what was running")
	flag.Parse()
	if err := run(context.Background(), *server, *since, *note, flag.Arg(0), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "drawpanels:", err)
		os.Exit(1)
	}
}

// dashboard is what is read of a dashboard.
type dashboard struct {
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	GridPos struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr   string `json:"expr"`
		Legend string `json:"legendFormat"`
	} `json:"targets"`
}

// series is what an expression has brought.
type series struct {
	name   string
	points [][2]float64 // seconds, value
}

func run(ctx context.Context, server string, since time.Duration, note, file string, out io.Writer) error {
	if file == "" {
		return errors.New("name the dashboard's file")
	}
	text, err := os.ReadFile(file) //nolint:gosec // the caller says which
	if err != nil {
		return err
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		return err
	}
	p := &prometheus{server: server, end: time.Now(), since: since}
	c := &canvas{from: float64(p.end.Add(-since).Unix()), to: float64(p.end.Unix())}
	for _, panel := range d.Panels {
		var all []series
		for _, target := range panel.Targets {
			found, err := p.ask(ctx, target.Expr, target.Legend)
			if err != nil {
				return fmt.Errorf("%s: %w", panel.Title, err)
			}
			all = append(all, found...)
		}
		c.draw(&panel, all)
	}
	return c.write(out, d.Title, note)
}

// prometheus is asked for ranges.
type prometheus struct {
	server string
	end    time.Time
	since  time.Duration
}

var variables = strings.NewReplacer("$group", ".*", "$topic", ".*", "$__rate_interval", "1m")

func (p *prometheus) ask(ctx context.Context, expr, legend string) (all []series, err error) {
	query := url.Values{
		"query": {variables.Replace(expr)}, "start": {stamp(p.end.Add(-p.since))}, "end": {stamp(p.end)},
		"step": {strconv.Itoa(max(1, int(p.since.Seconds())/240))},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.server+"/api/v1/query_range?"+query.Encode(),
		http.NoBody)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Values [][2]any          `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(res.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	for _, r := range answer.Data.Result {
		s := series{name: named(legend, r.Metric)}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			if value, err := strconv.ParseFloat(text, 64); err == nil && value == value {
				s.points = append(s.points, [2]float64{at, value})
			}
		}
		all = append(all, s)
	}
	return all, nil
}

func stamp(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

// named fills labels into a legend.
func named(legend string, labels map[string]string) string {
	for name, value := range labels {
		legend = strings.ReplaceAll(legend, "{{"+name+"}}", value)
	}
	return legend
}
