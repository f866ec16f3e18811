package observetest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// movements are those of all episodes.
type movements struct {
	mu  sync.Mutex
	all map[string]*moved
}

func newMovements() *movements { return &movements{all: map[string]*moved{}} }

func (m *movements) add(found map[string]*moved) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, one := range found {
		if m.all[name] == nil {
			m.all[name] = &moved{keys: map[string]bool{}}
		}
		m.all[name].join(one)
	}
}

var (
	tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [a-z ]+ \\| `[^`]+` \\| ([^|]+) \\| [^|]+ \\| [^|]+ \\|$")
	inQuotes = regexp.MustCompile("`([^`]+)`")
)

// documented are the instruments of docs/metrics.md, with the names of their attributes.
func documented(t testing.TB) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		var keys []string
		for _, key := range inQuotes.FindAllStringSubmatch(row[2], -1) {
			keys = append(keys, key[1])
		}
		found[row[1]] = keys
	}
	return found
}

func (m *movements) check(t *testing.T) {
	t.Helper()
	docs := documented(t)
	for name, want := range docs {
		got := m.all[name]
		if got == nil || !got.notZero {
			t.Errorf("%s did not move", name)
			continue
		}
		var keys []string
		for key := range got.keys {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		slices.Sort(want)
		if !slices.Equal(keys, want) {
			t.Errorf("%s has the attributes %s, docs/metrics.md says %s", name, strings.Join(keys, ", "),
				strings.Join(want, ", "))
		}
	}
	for name := range m.all {
		if docs[name] == nil {
			t.Errorf("%s is not in docs/metrics.md", name)
		}
	}
}
