package idempotency

import (
	"net/http"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/internal/fuzztest"
)

// FuzzKey looks for keys that are not what the rules of the header field make of it, and for two spellings that are one
// key where they must not be.
func FuzzKey(f *testing.F) {
	for _, seed := range []string{"", `""`, `"a"`, "a", `"a\"b"`, `"a\\"`, `"a\"`, `"a", "b"`, "a,b", "a b", "\xff", `"ü"`,
		` "a" `, `"a";b`, strings.Repeat("k", 256), "a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		var key string
		var err error
		fuzztest.Bounded(t, len(value), 1<<20, func() { key, err = keyOf(http.Header{defaultHeader: {value}}) })
		if err != nil {
			if key != "" {
				t.Errorf("%q: a key and an error", value)
			}
			return
		}
		if key == "" || len(key) > MaxKeyLen {
			t.Errorf("%q: a key of %d bytes", value, len(key))
		}
		for i := range len(key) {
			if key[i] < ' ' || key[i] > '~' {
				t.Errorf("%q: the key has the byte %#x", value, key[i])
			}
		}
		// The key, spelled as the draft wants it, is the same one, and what was sent is either this or the key itself.
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
		if again, err := parseKey(quoted); err != nil || again != key {
			t.Errorf("%q: quoted again it is %q, %v", value, again, err)
		}
		sent := strings.Trim(value, " \t")
		if behind, ok := strings.CutPrefix(sent, quoted); ok && strings.HasPrefix(strings.TrimLeft(behind, " "), ";") {
			return // parameters
		}
		if sent != quoted && sent != key {
			t.Errorf("%q: the key is %q", value, key)
		}
		if _, err := keyOf(http.Header{defaultHeader: {value, value}}); err == nil {
			t.Errorf("%q: two fields are taken", value)
		}
	})
}
