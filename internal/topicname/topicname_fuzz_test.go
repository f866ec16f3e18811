package topicname

import (
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/fuzztest"
)

// FuzzCheck compares the check with what Kafka's Topic.validate does, character by character.
func FuzzCheck(f *testing.F) {
	for _, name := range []string{"", ".", "..", "...", "orders.confirmed", "a\n", "ä", "a b", strings.Repeat("a", 249),
		strings.Repeat("a", 250)} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		const known = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
		want := name != "" && name != "." && name != ".." && len(name) <= 249
		for i := range len(name) {
			want = want && strings.IndexByte(known, name[i]) >= 0
		}
		var err error
		fuzztest.Bounded(t, len(name), 1<<20, func() { err = Check(name) })
		if (err == nil) != want {
			t.Errorf("Check(%q) = %v, want legal: %v", name, err, want)
		}
		if err != nil && len(err.Error()) > 600 {
			t.Errorf("an error of %d bytes", len(err.Error()))
		}
	})
}
