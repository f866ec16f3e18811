package deadtest

import (
	"testing"

	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/dedupstore"
)

// SessionThatOthersHaveChanged checks that a session in which somebody has left another role, or another search_path, is
// given up: each call fails once. open returns a new table, whose pool has one connection, on which set runs a statement.
func SessionThatOthersHaveChanged[Tx any](t *testing.T, open func() (deadletter.Table[Tx], deadletter.Starts),
	set func(text string) error) {
	t.Helper()
	key := dedupstore.Key{Consumer: "billing/orders", Event: "e1"}
	for name, use := range map[string]func(table deadletter.Table[Tx], starts deadletter.Starts) error{
		"Begin": func(_ deadletter.Table[Tx], starts deadletter.Starts) error {
			_, err := starts.Begin(t.Context(), key)
			return err
		},
		"Pending": func(_ deadletter.Table[Tx], starts deadletter.Starts) error {
			_, err := starts.Pending(t.Context(), key.Consumer)
			return err
		},
		"End": func(_ deadletter.Table[Tx], starts deadletter.Starts) error { return starts.End(t.Context(), key) },
		"Count": func(table deadletter.Table[Tx], _ deadletter.Starts) error {
			_, err := table.Count(t.Context(), deadletter.Filter{})
			return err
		},
		"Failed": func(table deadletter.Table[Tx], _ deadletter.Starts) error {
			return table.Failed(t.Context(), 1, "again")
		},
		"Browse": func(table deadletter.Table[Tx], _ deadletter.Starts) error {
			_, err := table.(deadletter.Browser).Browse(t.Context(), deadletter.Search{}, deadletter.Page{})
			return err
		},
	} {
		table, starts := open()
		call := func() error { return use(table, starts) }
		for _, text := range []string{"set search_path to ''", "set role pg_monitor", "set role pg_monitor"} {
			if err := set(text); err != nil {
				t.Fatal(err)
			}
			if err := call(); err == nil {
				t.Errorf("%s works after %s: it proves nothing", name, text)
			}
			if err := call(); err != nil {
				t.Errorf("%s, again after %s: %v", name, text, err)
			}
		}
	}
}
