package serverstest

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

var announced sync.Map

// announce says once which server this test binary uses: on standard error, and in the file that EINMAL_SERVERS_LOG
// names, as tab-separated program, role and origin.
func announce(role, origin string) {
	if _, before := announced.LoadOrStore(role+origin, true); before {
		return
	}
	program := filepath.Base(os.Args[0])
	fmt.Fprintf(os.Stderr, "%s: %s: %s\n", program, role, origin)
	if name := os.Getenv("EINMAL_SERVERS_LOG"); name != "" {
		if err := appendLine(name, fmt.Sprintf("%s\t%s\t%s\n", program, role, origin)); err != nil {
			fmt.Fprintln(os.Stderr, "EINMAL_SERVERS_LOG:", err)
		}
	}
}

// appendLine writes in one call, so that lines of test binaries that run side by side do not mix.
func appendLine(name, line string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
