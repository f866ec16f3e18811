package schematest_test

import (
	"testing"

	"github.com/einmal-go/einmal/internal/schematest"
	"github.com/einmal-go/einmal/schema"
)

func TestPrinted(t *testing.T) {
	t.Parallel()
	named := &schema.Config{Schema: "a 'b", Tables: map[string]string{"dead_message": `x "y`}}
	for text, want := range map[string]string{
		"no command": "no command",
		"run: what this prints: einmal schema print -db postgres dedup":                                                          "run: " + schema.Postgres.SQL(nil, schema.Dedup),
		"run: what this prints: einmal schema print -db sqlite crashloop; its index":                                             "run: " + schema.SQLite.SQL(nil, schema.CrashLoop) + "; its index",
		"run: create schema s; and then what this prints: einmal schema print -db postgres -schema s dedup":                      "run: create schema s; " + schema.Postgres.SQL(&schema.Config{Schema: "s"}, schema.Dedup),
		`what this prints: einmal schema print -db postgres -schema 'a '\''b' -table 'dead_message=x "y' deadletter (and so on)`: schema.Postgres.SQL(named, schema.DeadLetter) + " (and so on)",
	} {
		if got := schematest.Printed(text); got != want {
			t.Errorf("Printed(%q) = %q, want %q", text, got, want)
		}
	}
}
