package servers_test

import (
	"testing"

	"github.com/einmal-go/einmal/internal/servers"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) {
	servers.ChildMain()
	serverstest.Main(m)
}
