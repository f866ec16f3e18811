package rolestest_test

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/rolestest"
)

// TestCommands runs the operators' commands: those that look as the reader, those that change as the operator. What the
// reader must not do the server refuses.
func TestCommands(t *testing.T) {
	t.Parallel()
	cli := filepath.Join(t.TempDir(), "einmal")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", cli,
		"../../cmd/einmal").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	admin := tables(t)
	old(t, admin)
	must := func(role *rolestest.Role, says string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), cli, args...)
		cmd.Env = append(cmd.Environ(), "EINMAL_DATABASE_URL="+role.URL)
		if out, err := cmd.CombinedOutput(); !strings.Contains(string(out), says) ||
			(err == nil) == strings.Contains(says, "permission denied") {
			t.Errorf("%s: einmal %s: %v: %s", strings.Split(role.Name, "_")[1], strings.Join(args, " "), err, out)
		}
	}
	reader, operator := rolestest.New(t, admin, "reader"), rolestest.New(t, admin, "operator")
	for _, role := range []*rolestest.Role{reader, operator} {
		must(role, "listed: 1 of 1", "dead", "list")
		must(role, `"topic": "orders"`, "dead", "show", "-message", "1")
		must(role, "listed: 1", "outbox", "list")
		must(role, `"topic": "orders"`, "outbox", "show", "-message", "1")
	}
	must(reader, "errors: 0", "schema", "check", "-for", "reader")
	must(operator, "errors: 0", "schema", "check", "-for", "operator")
	must(reader, "permission denied", "dead", "discard", "-yes", "1")
	must(reader, "permission denied", "dead", "redrive", "-yes", "1")
	must(reader, "permission denied", "outbox", "discard", "-yes", "-reason", "test", "1")
	must(reader, "permission denied", "outbox", "edit", "-yes", "-topic", "other", "1")
	must(operator, "edited: 1", "outbox", "edit", "-yes", "-topic", "other", "1")
	must(operator, "to be sent again: 0", "outbox", "retry", "-yes", "-topic", "none")
	must(operator, "discarded: 1", "outbox", "discard", "-yes", "-reason", "test", "-state", "PENDING")
	must(operator, "it is two-phase now", "outbox", "mode", "-yes", "two-phase")
	must(operator, "published: 1", "dead", "redrive", "-yes", "-event-id", "key", "-all")
	old(t, admin)
	must(reader, "permission denied", "erase", "-yes", "-event", "e")
	must(operator, "dead_message: deleted 1", "erase", "-yes", "-event", "e", "-principal", "u", "-unsent")
	must(operator, "to discard: 0", "dead", "discard", "-yes", "-consumer", "c")
}
