package rolestest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The indexes that the page gives the janitor's sweeps can be made, each on its table and column.
func TestIndexesOfThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/security.md")
	must(t, err)
	admin := tables(t)
	before := count(t, admin, "select count(*) from pg_index where indisvalid and indrelid in (select oid from pg_class where relnamespace = current_schema()::regnamespace)")
	found := regexp.MustCompile(`(?m)// (create index concurrently on [^\n]+)$`).FindAllStringSubmatch(string(text), -1)
	for _, m := range found {
		execute(t, admin, strings.Replace(m[1], "concurrently ", "", 1)) // which would wait for the transactions of other tests
	}
	after := count(t, admin, "select count(*) from pg_index where indisvalid and indrelid in (select oid from pg_class where relnamespace = current_schema()::regnamespace)")
	if len(found) == 0 || after != before+len(found) {
		t.Errorf("%d statements made %d indexes", len(found), after-before)
	}
}
