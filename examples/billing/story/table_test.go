package story

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/audit"
)

var (
	right = Ledger{Rows: 1000, Cents: 9_949_503}
	good  = Figures{
		Requests: 1000, Sent: 1415, Replayed: 411, LostAnswers: 253, Deliveries: 2314, Duplicates: 295, Kills: 12,
		Ledgers: [4]Ledger{right, right, right, right}, Expected: 9_949_503,
	}
	bad = Figures{
		Requests: 1000, Sent: 1418, LostAnswers: 356, Deliveries: 3661, Kills: 12, Expected: 9_949_503,
		Ledgers: [4]Ledger{{Rows: 1570, Doubled: 570}, {Rows: 1763, Doubled: 770, Missing: 7},
			{Rows: 1796, Doubled: 804, Missing: 8, Cents: 18_172_663}, {Rows: 1838, Doubled: 838}},
	}
)

var nearly = func() Figures {
	f := good
	f.Ledgers[2].Rows, f.Ledgers[2].Doubled = 1002, 2
	return f
}()

const tableAlone = `
requests                   1,000
sent                       1,415
answers replayed             411
answers lost                 253
deliveries                 2,314
duplicates                   295
kills                         12
orders                     1,000
charges                    1,000
provider charges           1,000
receipts                   1,000
doubled                        0
missing                        0
money expected         99,495.03
money charged          99,495.03
`

const tableSideBySide = `
                          einmal         plain
requests                   1,000         1,000
sent                       1,415         1,418
answers replayed             411             0
answers lost                 253           356
deliveries                 2,314         3,661
duplicates                   295             0
kills                         12            12
orders                     1,000         1,570
charges                    1,000         1,763
provider charges           1,000         1,796
receipts                   1,000         1,838
doubled                        0         2,982
missing                        0            15
money expected         99,495.03     99,495.03
money charged          99,495.03    181,726.63
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

// Any difference in any ledger breaks the promise.
func TestExact(t *testing.T) {
	t.Parallel()
	if !good.Exact() {
		t.Error("what is right is not exact")
	}
	for i := range good.Ledgers {
		for _, change := range []func(*Ledger){
			func(l *Ledger) { l.Rows++; l.Doubled++ }, func(l *Ledger) { l.Rows--; l.Missing++ }, func(l *Ledger) { l.Cents++ },
			func(l *Ledger) { l.Rows = 0 },
		} {
			f := good
			change(&f.Ledgers[i])
			if f.Exact() {
				t.Errorf("%+v is exact", f.Ledgers)
			}
		}
	}
}

// What an audit has found breaks the promise too, and so does an event that it has not seen.
func TestExactWithAudits(t *testing.T) {
	t.Parallel()
	report := func(edit func(*audit.Report)) *audit.Report {
		r := &audit.Report{Topic: "einmal-billing-x.orders.confirmed", Messages: 1003, Events: 1000, Recorded: 1000,
			Effects: 1000, Found: audit.Found{}}
		for _, kind := range slices.Concat(audit.Findings(), audit.Notes()) {
			r.Found[kind] = &audit.Finding{}
		}
		edit(r)
		return r
	}
	for _, c := range []struct {
		edit  func(*audit.Report)
		exact bool
	}{
		{func(r *audit.Report) { r.Found[audit.Repeated].Count = 3 }, true},
		{func(r *audit.Report) { r.Found[audit.Lost].Count = 1 }, false},
		{func(r *audit.Report) { r.Recorded, r.Events = 999, 999 }, false},
		{func(r *audit.Report) { r.Events++ }, false},
	} {
		f := good
		f.Audits = []*audit.Report{report(func(*audit.Report) {}), report(c.edit)}
		if f.Exact() != c.exact {
			t.Errorf("%+v: Exact() = %v", f.Audits[1], f.Exact())
		}
	}
	var b strings.Builder
	printAudits(&b, []*audit.Report{report(func(r *audit.Report) { r.Found[audit.Lost].Count = 7 })})
	for _, want := range []string{"audit                       orders.confirmed\n",
		"recorded                               1,000\n", "lost                                       7\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("there is no line %q:\n%s", want, b.String())
		}
	}
}

// Only what einmal promises can fail: plain services that do damage show what they were asked to show.
func TestJudge(t *testing.T) {
	t.Parallel()
	broken := good
	broken.Ledgers[3].Missing = 1
	for _, c := range []struct {
		name    string
		mode    Mode
		compare bool
		columns []column
		fails   bool
		says    string
	}{
		{"einmal kept its promise", Einmal, false, []column{{"einmal", good}}, false, "one payment at the provider"},
		{"einmal broke it", Einmal, false, []column{{"einmal", bad}}, true, ""},
		{"one receipt missing is enough", Einmal, false, []column{{"einmal", broken}}, true, ""},
		{"damage is shown", Plain, false, []column{{"plain", bad}}, false,
			"provider charges 804 too many, 8 missing; receipts 838 too many"},
		{"no damage is admitted", Careful, false, []column{{"careful", good}}, false,
			"careful: this time every order was charged once"},
		{"side by side", Einmal, true, []column{{"einmal", good}, {"careful", nearly}, {"plain", bad}}, false,
			"careful: orders exact; charges exact; provider charges 2 too many, 0 missing; receipts exact"},
		{"side by side, broken", Einmal, true, []column{{"einmal", bad}, {"careful", good}, {"plain", bad}}, true, ""},
	} {
		var b strings.Builder
		s := Show{Options: Options{Mode: c.mode, Out: &b, Log: io.Discard}, Compare: c.compare}
		err := s.judge(c.columns)
		if (err != nil) != c.fails || !strings.Contains(b.String(), c.says) {
			t.Errorf("%s: error %v; it says:\n%s", c.name, err, b.String())
		}
	}
}
