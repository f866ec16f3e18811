package deadletter_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
	"github.com/einmal-go/einmal/internal/fuzztest"
)

var letter = &consumer.Message{
	Topic: "orders", Key: []byte("customer-77"), Value: []byte(`{"id": "o-1", "cents": "12 or so", "card": "4111"}`),
	Headers: []consumer.Header{{Key: "auth", Value: []byte("very secret")}, {Key: "v", Value: []byte("1")}},
}

func TestText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"no such account":              "no such account",
		`column "cents" of "charge"`:   `column "***" of "charge"`, // a word of the message, too
		"customer-77 is blocked":       "*** is blocked",
		"header very secret, value 1!": "header ***, value 1!",
		string(letter.Value):           `{"***"}`,
		`invalid input syntax for type integer: "12 or so" (SQLSTATE 22P02)`: `invalid input syntax for type integer: "***" (SQLSTATE 22P02)`,
		"bad 'o-1', bad `4111`":                                            "bad '***', bad `***`",
		"dial postgres://app:hunter2@db:5432/x: refused":                   "dial postgres://app:***@db:5432/x: refused",
		"host=db password=hunter2 user=app":                                "host=db password=*** user=app",
		`{"password": "hunter two", "x": 1}`:                               `{"password": "***", "x": 1}`,
		"Authorization: Bearer abcdefghijkl":                               "Authorization: ***",
		"sent bearer abcdef.ghijkl-123":                                    "sent bearer ***",
		"GET /x?api_key=12345&y=2":                                         "GET /x?api_key=***&y=2",
		"password authentication failed for user \"app\" (SQLSTATE 28P01)": "password authentication failed for user \"app\" (SQLSTATE 28P01)",
		"a \x00 NUL, and no \xff UTF-8":                                    "a ? NUL, and no ? UTF-8",
		strings.Repeat("é", deadletter.MaxText):                            strings.Repeat("é", deadletter.MaxText/2),
		"x" + strings.Repeat("é", deadletter.MaxText): "x" +
			strings.Repeat("é", deadletter.MaxText/2-1) + "?",
	} {
		if got := deadletter.Text(errors.New(text), letter); got != want {
			t.Errorf("%.80q: %.80q, want %.80q", text, got, want)
		}
	}
	if got := deadletter.Text(nil, letter); got != "" {
		t.Error(got)
	}
	if got := deadletter.Text(errors.New("customer-77"), nil); got != "customer-77" {
		t.Error(got)
	}
}

// Whatever the text and the message are, the result is short, is text, and holds no value or key of the message.
func FuzzText(f *testing.F) {
	f.Add("order 12 or so", "12 or so", "key")
	f.Add(`"\"`, `\`, "'")
	f.Fuzz(func(t *testing.T, text, value, key string) {
		var got string
		fuzztest.Bounded(t, len(text)+len(value)+len(key), 4<<20, func() {
			got = deadletter.Text(errors.New(text), &consumer.Message{Value: []byte(value), Key: []byte(key)})
		})
		if len(got) > deadletter.MaxText || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
		if len(text) < 1000 && len(value) >= 4 && utf8.ValidString(text) && !strings.Contains(value, "*") &&
			!strings.Contains(text, "*") && strings.Contains(got, value) && !strings.Contains(value, "\x00") {
			t.Errorf("%q holds %q", got, value)
		}
	})
}

// A text that repeats a large message does not show its beginning, which is all that is left of it when the text is
// cut.
func TestTextOfALargeMessage(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 3000, 5000, 20_000, 1_000_000} {
		field := strings.Repeat("4111 1111 1111 1111 ", size/20)
		msg := &consumer.Message{Value: []byte(`{"card":"` + field + `"}`)}
		for _, err := range []error{
			fmt.Errorf("cannot read %s: no", msg.Value), fmt.Errorf("no uuid: %q", field), fmt.Errorf("no uuid: '%s'", field),
			fmt.Errorf(`"a" is no "%s"`, field),
			fmt.Errorf("cannot read %s: no, really: %s", msg.Value, msg.Value),
		} {
			if text := deadletter.Text(err, msg); strings.Contains(text, "4111") || len(text) > deadletter.MaxText {
				t.Errorf("%d bytes: %.80q", size, text)
			}
		}
	}
}
