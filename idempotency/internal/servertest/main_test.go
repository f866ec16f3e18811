package servertest_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(childEnv); url != "" {
		if err := serveUntilTerminated(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	serverstest.Main(m)
}
