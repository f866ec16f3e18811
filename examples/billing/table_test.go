package main

import (
	"io"
	"strings"
	"testing"
)

var (
	good = figures{Messages: 3600, Deliveries: 4681, Duplicates: 1670, Kills: 8, Charges: 3000, Expected: 29756334, Charged: 29756334}
	bad  = figures{Messages: 3600, Deliveries: 4355, Kills: 8, Charges: 4329, Doubled: 1346, Missing: 17, Expected: 29756334, Charged: 42641831}
)

const tableAlone = `
messages                 3,600
deliveries               4,681
duplicates               1,670
kills                        8
charges                  3,000
doubled                      0
missing                      0
money expected      297,563.34
money charged       297,563.34
`

const tableSideBySide = `
                        einmal         plain
messages                 3,600         3,600
deliveries               4,681         4,355
duplicates               1,670             0
kills                        8             8
charges                  3,000         4,329
doubled                      0         1,346
missing                      0            17
money expected      297,563.34    297,563.34
money charged       297,563.34    426,418.31
`

func TestTable(t *testing.T) {
	t.Parallel()
	for want, columns := range map[string][]column{
		tableAlone:      {{"", good}},
		tableSideBySide: {{"einmal", good}, {"plain", bad}},
	} {
		var b strings.Builder
		printTable(&b, columns...)
		if got := "\n" + b.String(); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000"} {
		if got := thousands(n); got != want {
			t.Errorf("thousands(%d) = %q, want %q", n, got, want)
		}
	}
	for cents, want := range map[int64]string{0: "0.00", 5: "0.05", 123456: "1,234.56", -150: "-1.50"} {
		if got := money(cents); got != want {
			t.Errorf("money(%d) = %q, want %q", cents, got, want)
		}
	}
}

// Only what einmal promises can fail: a plain consumer that does damage shows what it was asked to show.
func TestJudge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		naive   bool
		compare bool
		columns []column
		fails   bool
		says    string
	}{
		{"einmal kept its promise", false, false, []column{{"einmal", good}}, false, "every order was charged once"},
		{"einmal broke it", false, false, []column{{"einmal", bad}}, true, ""},
		{"one missing is enough", false, false, []column{{"einmal", figures{Missing: 1}}}, true, ""},
		{"wrong money is enough", false, false, []column{{"einmal", figures{Charged: 1}}}, true, ""},
		{"damage is shown", true, false, []column{{"plain", bad}}, false, "1,346 charges too many and 17 orders never charged"},
		{"no damage is admitted", true, false, []column{{"plain", good}}, false, "by luck"},
		{"side by side", false, true, []column{{"einmal", good}, {"plain", bad}}, false, "17 orders never charged"},
		{"side by side, broken", false, true, []column{{"einmal", bad}, {"plain", bad}}, true, ""},
	} {
		var b strings.Builder
		s := show{storyOptions: storyOptions{naive: c.naive, out: &b, log: io.Discard}, compare: c.compare}
		err := s.judge(c.columns)
		if (err != nil) != c.fails || !strings.Contains(b.String(), c.says) {
			t.Errorf("%s: error %v; it says:\n%s", c.name, err, b.String())
		}
	}
}
