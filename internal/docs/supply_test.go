package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	uses      = regexp.MustCompile(`(?m)^\s*-?\s*uses:\s*(\S+)`)
	pinned    = regexp.MustCompile(`@[0-9a-f]{40}$`)
	installed = regexp.MustCompile(`(?m)go (?:install|run) \S+@(\S+)`)
	jar       = regexp.MustCompile(`(?m)^[0-9a-f]{64}  (\S+\.jar)$`)
)

// TestSupplyChain checks that what CI fetches is named by what it is, and not by what somebody calls it at the moment.
func TestSupplyChain(t *testing.T) {
	t.Parallel()
	read := func(path string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	workflows, err := filepath.Glob(root + "/.github/workflows/*.yml")
	if err != nil || len(workflows) == 0 {
		t.Fatal(len(workflows), err)
	}
	actions := 0
	for _, path := range workflows {
		text := read(strings.TrimPrefix(path, root+"/"))
		for _, m := range uses.FindAllStringSubmatch(text, -1) {
			if actions++; !pinned.MatchString(m[1]) {
				t.Errorf("%s uses %s: name the commit", path, m[1])
			}
		}
	}
	if actions == 0 {
		t.Error("no actions were found")
	}
	for _, path := range []string{".ci/run", ".ci/install.sh", ".ci/steps.sh"} {
		for _, m := range installed.FindAllStringSubmatch(read(path), -1) {
			if m[1] == "latest" {
				t.Errorf("%s installs a tool in whichever version is the latest: %s", path, m[0])
			}
		}
	}
	version := regexp.MustCompile(`<kafka.version>(.*)</kafka.version>`).FindStringSubmatch(read(".ci/images/kafka/pom.xml"))
	jars := jar.FindAllStringSubmatch(read(".ci/images/kafka/jars.sha256"), -1)
	if len(version) != 2 || len(jars) < 50 || !strings.Contains(read(".ci/images/kafka/jars.sha256"), "kafka_2.13-"+
		version[1]+".jar") {
		t.Errorf("%d jars have digests, and not those of %v", len(jars), version)
	}
}
