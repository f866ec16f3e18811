package redact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/einmal-go/einmal/internal/fuzztest"
	"github.com/einmal-go/einmal/internal/redact"
	"github.com/einmal-go/einmal/internal/redact/redacttest"
)

const limit = 1024

func TestSpellingsOfSecrets(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/security.md")
	if n := len(redacttest.Spellings); n < 60 || err != nil ||
		!strings.Contains(string(page), fmt.Sprintf("%d spellings", n)) {
		t.Errorf("%d spellings, and docs/security.md has another number (%v)", n, err)
	}
	for _, text := range redacttest.Spellings {
		for _, around := range []string{"%s", "dial: %s: refused", "(%s)", "a\n%s\nb", `{"error": "%s"}`, "quoted %q",
			"quoted twice %q", "https://elsewhere.example/?q=%s&x=1"} {
			whole := fmt.Sprintf(around, text)
			switch {
			case strings.HasPrefix(around, "quoted twice"):
				whole = fmt.Sprintf("%q", whole)
			case strings.HasPrefix(around, "https:"):
				whole = fmt.Sprintf(around, url.QueryEscape(text))
			}
			for from, got := range map[string]string{"Text": redact.Text(whole, limit),
				"Message": redact.Message(whole, [][]byte{[]byte("x")}, limit), "Error": redact.Error(errors.New(whole)).Error()} {
				if redacttest.In(got) != "" || !strings.Contains(got, redact.Masked) {
					t.Errorf("%s(%q) is %q", from, whole, got)
				}
			}
		}
	}
}

// What is no secret stays readable.
func TestTextsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "no such account", `password authentication failed for user "app" (SQLSTATE 28P01)`,
		"http://host:8080/path: connection refused", "http://host:8080/@scope/pkg",
		"http://[::1]:8080/x", "write to a@b.example failed", "orders[3]@17 is open for 3s", "the access token has expired",
		"postgres://app@db:5432/x: refused",
		"dial tcp 10.0.0.1:9092: connect: connection refused",
		"duplicate key value violates unique constraint \"charge_pkey\"", "tokens", "file:///tmp/x", "12:30 tomorrow",
	} {
		if got := redact.Text(text, limit); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("https://app:hunter2@host:1/p?token=x#y")
	if err != nil {
		t.Fatal(err)
	}
	if got := redact.URL(u); got != "https://host:1/p" {
		t.Error(got)
	}
}

func TestErrorIsStillTheError(t *testing.T) {
	t.Parallel()
	inner := errors.New("password=x")
	if err := redact.Error(inner); !errors.Is(err, inner) || err.Error() != "password=***" {
		t.Error(err)
	}
	if err := redact.Error(nil); err != nil {
		t.Error(err)
	}
}

func TestLine(t *testing.T) {
	t.Parallel()
	got := redact.Line(redacttest.Nasty)
	if i := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
	if got := redact.Line("Zürich Łódź 1 €"); got != "Zürich Łódź 1 €" {
		t.Error(got)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	was := map[string]any{"k\u202e": redacttest.Nasty}
	text, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	got := redact.JSON(text)
	if i := bytes.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q", got)
	}
	var before, after any
	if err := errors.Join(json.Unmarshal(text, &before), json.Unmarshal(got, &after)); err != nil ||
		!reflect.DeepEqual(before, after) {
		t.Errorf("%v: %s", err, got)
	}
}

// The texts in a document are masked, what leads to them and what is no text stay.
func TestStrings(t *testing.T) {
	t.Parallel()
	for _, spelling := range redacttest.Spellings {
		text, err := json.Marshal(map[string]any{"a": spelling, "b": []any{spelling, 1.5, nil, true},
			"c": "harmless \"text\""})
		if err != nil {
			t.Fatal(err)
		}
		got := redact.Strings(text)
		var after map[string]any
		if err := json.Unmarshal(got, &after); err != nil || redacttest.In(string(got)) != "" {
			t.Errorf("%v: %s", err, got)
			continue
		}
		if list, ok := after["b"].([]any); !ok || after["c"] != `harmless "text"` || len(list) != 4 || list[1] != 1.5 ||
			list[2] != nil || list[3] != true {
			t.Errorf("%v", after)
		}
	}
}

// A text and a message of any size and shape take a time that grows with their sizes: what a stranger sends does not
// occupy a processor.
func TestTimeIsLinear(t *testing.T) {
	t.Parallel()
	headers := make([][]byte, 200_000)
	for i := range headers {
		headers[i] = fmt.Appendf(nil, "value%d", i)
	}
	large := []byte(strings.Repeat("4111 1111 1111 1111 ", 500_000)) // 10 MB
	for name, c := range map[string]struct {
		text  string
		parts [][]byte
	}{
		"900 kB and 200,000 headers": {strings.Repeat("value1 value2 ", 64_000), headers},
		"repeats 10 MB":              {string(large), [][]byte{large}},
		"quotes":                     {strings.Repeat(`"a`, 450_000), [][]byte{large}},
		"escaped quotes":             {strings.Repeat(`\"a`, 300_000), [][]byte{large}},
		"names":                      {strings.Repeat("password", 100_000), headers},
		"names with open quotes":     {strings.Repeat(`password="`, 100_000), headers},
		"names with brackets":        {strings.Repeat(`token:[`, 100_000), headers},
		"URLs":                       {strings.Repeat("a://b:c", 100_000), headers},
		"URLs with @":                {strings.Repeat("a://b:c@", 100_000), headers},
		"blanks":                     {"password" + strings.Repeat(" ", 900_000) + "=x", headers},
		"keys":                       {strings.Repeat("-----BEGIN PRIVATE KEY-----", 30_000), headers},
		"addresses":                  {strings.Repeat(":a@tcp(", 100_000), headers},
	} {
		start := time.Now()
		got := redact.Message(c.text, c.parts, 2048)
		if took := time.Since(start); len(got) > 2048 || took > 5*time.Second {
			t.Errorf("%s: %d bytes after %v", name, len(got), took)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, s := range redacttest.Spellings {
		f.Add(s, "some value of a message", "key-1")
	}
	f.Add(redacttest.Nasty, redacttest.Nasty, `"\"`)
	f.Fuzz(func(t *testing.T, text, value, key string) {
		var got string
		fuzztest.Bounded(t, len(text)+len(value)+len(key), 4<<20, func() {
			got = redact.Message(text, [][]byte{[]byte(value), []byte(key)}, limit)
			_ = redact.Line(text)
		})
		if len(got) > limit || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
		if len(value) >= 4 && utf8.ValidString(text) && !strings.ContainsAny(text+value, "*\x00") &&
			strings.Contains(got, value) {
			t.Errorf("%q holds %q", got, value)
		}
	})
}
