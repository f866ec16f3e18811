package observetest

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const rulesFile = "../../docs/alerts/einmal.rules.yml"

// ruleTest is a file for promtool: what was scraped before and during each condition, as it would be if the condition
// lasted for an hour.
type ruleTest struct {
	mu    sync.Mutex
	tests []string
	fired map[string]bool
}

// TestEachRuleFiresAndStops: the file of episodes has one for each rule, in which it does not fire at first, then does,
// and then does not.
func TestEachRuleFiresAndStops(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	episodes, err := os.ReadFile("../../docs/alerts/einmal.episodes.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alertName.FindAllStringSubmatch(string(rules), -1) {
		_, episode, ok := strings.Cut(string(episodes), "- name: "+alert[1]+" fires and stops\n")
		if !ok {
			t.Errorf("%s has no episode", alert[1])
			continue
		}
		episode, _, _ = strings.Cut(episode, "- name: ")
		var expected []string
		for _, sample := range regexp.MustCompile(`exp_samples: (\[.*\])`).FindAllStringSubmatch(episode, -1) {
			expected = append(expected, sample[1])
		}
		if fires := "[{labels: '{}', value: 1}]"; !slices.Equal(expected, []string{"[]", fires, "[]"}) ||
			strings.Count(episode, `alertname="`+alert[1]+`"`) != 3 {
			t.Errorf("the episode of %s does not ask that it fires and stops: %q", alert[1], expected)
		}
	}
	promtool(t, string(episodes), rules)
}

const (
	minutesBefore = 5
	minutesAfter  = 60
	evaluateAt    = 50
)

func (r *ruleTest) add(alert string, before, after scrape) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fired == nil {
		r.fired = map[string]bool{}
	}
	r.fired[alert] = true
	var b strings.Builder
	fmt.Fprintf(&b, "  - interval: 1m\n    name: %s\n    input_series:\n", alert)
	both := maps.Clone(before)
	maps.Copy(both, after)
	for _, series := range slices.Sorted(maps.Keys(both)) {
		if strings.HasPrefix(series, "einmal_") && !strings.Contains(series, "_bucket{") {
			fmt.Fprintf(&b, "      - series: '%s'\n        values: '%s'\n", strings.ReplaceAll(series, "'", "''"),
				values(series, before, after))
		}
	}
	firing := fmt.Sprintf(`ALERTS{alertname="%s",alertstate="firing"}`, alert)
	fmt.Fprintf(&b, "    promql_expr_test:\n      - expr: 'count(%s)'\n        eval_time: %dm\n        exp_samples: []\n",
		firing, minutesBefore-1)
	fmt.Fprintf(&b, "      - expr: 'min(%s)'\n        eval_time: %dm\n        exp_samples: [{labels: '{}', value: 1}]\n",
		firing, minutesBefore+evaluateAt)
	r.tests = append(r.tests, b.String())
}

// values go on as they have begun: a counter grows each minute by what it has grown by, an age by a minute.
func values(series string, before, after scrape) string {
	a, there := after[series]
	first := fmt.Sprintf("_x%d", minutesBefore)
	b, ok := before[series]
	if ok {
		first = fmt.Sprintf("%v+0x%d", b.value, minutesBefore-1)
	}
	if !there {
		return fmt.Sprintf("%s _x%d", first, minutesAfter)
	}
	step := 0.0
	switch {
	case a.counter:
		step = a.value - b.value
	case strings.Contains(series, "_age_seconds{") && a.value > 0:
		step = 60
	}
	return fmt.Sprintf("%s %v+%vx%d", first, a.value, step, minutesAfter)
}

var alertName = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)

// check has promtool evaluate the rules, and asks for an episode of each alert.
func (r *ruleTest) check(t *testing.T) {
	t.Helper()
	rules, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, alert := range alertName.FindAllStringSubmatch(string(rules), -1) {
		if !r.fired[alert[1]] {
			t.Errorf("%s is provoked in no episode", alert[1])
		}
		delete(r.fired, alert[1])
	}
	if len(r.fired) > 0 {
		t.Errorf("episodes name alerts that there are not: %v", r.fired)
	}
	promtool(t, "rule_files: [einmal.rules.yml]\nevaluation_interval: 1m\ntests:\n"+strings.Join(r.tests, ""), rules)
}

// promtool runs the test file beside the rules.
func promtool(t *testing.T, tests string, rules []byte) {
	t.Helper()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("EINMAL_REQUIRE_PROMTOOL") == "1" {
			t.Fatal("promtool is not there: install the package prometheus")
		}
		t.Skip("the alerts are not evaluated: promtool is not there, which the package prometheus brings")
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"einmal.rules.yml": rules, "test.yml": []byte(tests)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), tool, "test", "rules", "test.yml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, bytes.ReplaceAll(out, []byte("\n\n"), []byte("\n")))
	}
}
