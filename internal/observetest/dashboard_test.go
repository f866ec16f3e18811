package observetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// dashboard is what of docs/dashboards/einmal.json is looked at.
type dashboard struct {
	SchemaVersion int `json:"schemaVersion"`
	Panels        []struct {
		Title   string
		Type    string
		Targets []struct{ Expr string }
	}
}

func readDashboard(t testing.TB) *dashboard {
	t.Helper()
	text, err := os.ReadFile("../../docs/dashboards/einmal.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// variables are replaced by Grafana before Prometheus sees an expression.
var variables = strings.NewReplacer("$group", ".*", "$topic", ".*", "$__rate_interval", "5m", "$__range", "1h")

// allSeries are those of all episodes, each as a process of its own.
type allSeries struct {
	mu    sync.Mutex
	lines []string
	n     int
}

func (a *allSeries) add(before, after scrape) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.n++
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, series := range slices.Sorted(maps.Keys(both)) {
		if strings.HasPrefix(series, "einmal_") || strings.HasPrefix(series, "messaging_") {
			named := strings.Replace(series, "{", fmt.Sprintf(`{instance="%d",`, a.n), 1)
			a.lines = append(a.lines, fmt.Sprintf("      - series: '%s'\n        values: '%s'\n",
				strings.ReplaceAll(named, "'", "''"), values(series, before, after)))
		}
	}
}

// checkDashboard has Prometheus's engine evaluate each panel's expression on what was exported. A panel that shows
// nothing fails the test.
func (a *allSeries) checkDashboard(t *testing.T) {
	t.Helper()
	d := readDashboard(t)
	var b strings.Builder
	b.WriteString("rule_files: [einmal.rules.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    name: each panel shows something\n    input_series:\n")
	b.WriteString(strings.Join(a.lines, ""))
	b.WriteString("    promql_expr_test:\n")
	n := 0
	for _, p := range d.Panels {
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("the panel %q has %d expressions", p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			n++
			fmt.Fprintf(&b, "      - expr: 'count(%s) > bool 0'\n        eval_time: 15m\n        exp_samples: [{labels: '{}', value: 1}]\n", strings.ReplaceAll(variables.Replace(target.Expr), "'", "''"))
		}
	}
	if n < 30 || d.SchemaVersion < 39 {
		t.Errorf("%d expressions, schema %d", n, d.SchemaVersion)
	}
	promtool(t, b.String(), []byte("groups: []\n"))
}

// TestDashboardAsksInOrder: an operator reads it from top to bottom.
func TestDashboardAsksInOrder(t *testing.T) {
	t.Parallel()
	var rows []string
	for _, p := range readDashboard(t).Panels {
		if p.Type == "row" {
			rows = append(rows, p.Title)
		}
	}
	if want := []string{"Is it healthy?", "Is it late?", "What fails?", "What is given up?",
		"What does it cost?"}; !slices.Equal(rows, want) {
		t.Errorf("%q", rows)
	}
}
