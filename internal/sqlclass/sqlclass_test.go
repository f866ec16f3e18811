package sqlclass

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/dedupstore"
)

// What docs/failures.md says about SQLSTATEs is what the code does, row by row.
func TestTableOfTheDocumentation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	classes := map[string]dedupstore.Class{"Unclassified": dedupstore.Unclassified, "Transient": dedupstore.Transient,
		"Unavailable": dedupstore.Unavailable, "Misconfigured": dedupstore.Misconfigured}
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([0-9A-Z]{2,5})` \\| `([A-Za-z]+)` \\| (.*) \\|$").FindAllStringSubmatch(string(text), -1) {
		code, class, name := row[1], row[2], row[3]
		documented[code+name] = true
		full := (code + "ZZZ")[:5] // of a class of codes, one that is no row itself
		if want, known := classes[class]; !known || OfState(full) != want {
			t.Errorf("%s: docs/failures.md says %s, the code %v", code, class, OfState(full))
		}
	}
	for _, s := range states {
		if !documented[s.code+s.name] {
			t.Errorf("docs/failures.md has no row for %s, %s", s.code, s.name)
		}
	}
	if len(documented) != len(states) {
		t.Errorf("docs/failures.md has %d rows, the code %d", len(documented), len(states))
	}
}

// What docs/failures.md says about the codes of SQLite is what the code does, row by row.
func TestTableOfTheDocumentationForSQLite(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/failures.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `SQLITE_.*$").FindAllString(string(text), -1)
	var want []string
	for _, s := range sqliteStates {
		want = append(want, fmt.Sprintf("| `%s` (%d) | `%s` | %s |", s.name, s.code, classes[s.class], s.what))
	}
	if !slices.Equal(rows, want) {
		t.Errorf("docs/failures.md has\n%s\nthe code\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
	}
}

var classes = map[dedupstore.Class]string{dedupstore.Transient: "Transient", dedupstore.Unavailable: "Unavailable",
	dedupstore.Misconfigured: "Misconfigured"}

// What is in no row is the event's fault.
func TestTheRest(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"", "00000", "21000", "22012", "22P02", "23502", "23503", "23505", "23514", "25P02",
		"25P03", "42601", "42P07", "44000", "54001", "P0001", "XX000", "5"} {
		if class := OfState(code); class != dedupstore.Unclassified {
			t.Errorf("%s: %v", code, class)
		}
	}
}

// coded is an error of SQLite's drivers.
type coded struct {
	code int
	text string
}

func (e *coded) Error() string { return e.text }
func (e *coded) Code() int     { return e.code }

func TestOfSQLite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want dedupstore.Class
	}{
		{nil, dedupstore.Unclassified},
		{errors.New("own"), dedupstore.Unclassified},
		{&coded{1, "SQL logic error: no such table: t (1)"}, dedupstore.Misconfigured},
		{&coded{1, "table t has no column named c"}, dedupstore.Misconfigured},
		{&coded{1, "no such column: c"}, dedupstore.Misconfigured},
		{&coded{1, "near \"x\": syntax error"}, dedupstore.Unclassified},
		{&coded{5, ""}, dedupstore.Transient},
		{&coded{5 | 2<<8, ""}, dedupstore.Transient}, // SQLITE_BUSY_SNAPSHOT
		{&coded{6, ""}, dedupstore.Transient},
		{&coded{9, ""}, dedupstore.Transient},
		{&coded{8, ""}, dedupstore.Misconfigured},
		{&coded{11, ""}, dedupstore.Misconfigured},
		{&coded{10 | 3<<8, ""}, dedupstore.Unavailable},
		{&coded{13, ""}, dedupstore.Unavailable},
		{&coded{3, ""}, dedupstore.Misconfigured},
		{&coded{7, ""}, dedupstore.Unavailable},
		{&coded{14, ""}, dedupstore.Unavailable},
		{&coded{15, ""}, dedupstore.Transient},
		{&coded{17, ""}, dedupstore.Transient},
		{&coded{23, ""}, dedupstore.Misconfigured},
		{&coded{26, ""}, dedupstore.Misconfigured},
		{&coded{20, ""}, dedupstore.Unclassified},
		{&coded{1, "no such function: f"}, dedupstore.Misconfigured},
		{&coded{19 | 7<<8, "raised by a trigger"}, dedupstore.Unclassified},
		{errors.New("SQLITE_BUSY: in use"), dedupstore.Transient},
		{&coded{19, ""}, dedupstore.Unclassified},
		{errors.New("database is locked"), dedupstore.Transient},
	} {
		if got := Of(fmt.Errorf("wrapped: %w", orNil(c.err))); got != c.want {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
}

func orNil(err error) error {
	if err == nil {
		return errors.New("")
	}
	return err
}
