package serverstest

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/einmal-go/einmal/internal/servers"
)

// EnvRequireInstance set to 1 makes a failure of it that this machine cannot run a PostgreSQL of a test's own; not set,
// tests that need one are skipped and say why.
const EnvRequireInstance = "EINMAL_REQUIRE_INSTANCE"

// Instance answers with a PostgreSQL of this test's own, which is empty and does not run yet. It is gone when the test
// ends.
func Instance(t testing.TB, settings ...string) *servers.Instance {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), searchTimeout)
	defer cancel()
	i, err := servers.NewInstance(ctx, settings...)
	switch {
	case err == nil:
	case errors.Is(err, servers.ErrNoInstance) && os.Getenv(EnvRequireInstance) != "1":
		t.Skip(err)
	default:
		t.Fatal(err)
	}
	announce("instance", i.Origin)
	t.Cleanup(func() { closeInstance(t, i) })
	return i
}

// Replica answers with a replica of the instance, which must not run yet: see servers.Instance.Replica.
func Replica(t testing.TB, primary *servers.Instance, address string, settings ...string) *servers.Instance {
	t.Helper()
	r, err := primary.Replica(context.Background(), address, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeInstance(t, r) })
	return r
}

func closeInstance(t testing.TB, i *servers.Instance) {
	if err := i.Close(); err != nil {
		t.Error(err)
	}
}
