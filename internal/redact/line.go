package redact

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns text with blanks for all that a terminal obeys, or that hides what stands there: control characters, C1
// too, ends of lines, marks that turn the direction of writing, characters without width, bytes that are no UTF-8.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if moves(r) {
			return ' '
		}
		return r
	}, text)
}

// Lines is Line, for a text of several lines, with tabs.
func Lines(text string) string {
	return strings.Map(func(r rune) rune {
		if moves(r) && r != '\n' && r != '\t' {
			return ' '
		}
		return r
	}, text)
}

// moves reports whether a terminal does something else with r than show it.
func moves(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || r == utf8.RuneError
}

// JSON returns text, which is JSON, with escapes for all that Line would leave out, but for the blanks between its
// tokens.
func JSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r >= 0x7f && moves(r) }) {
		return text
	}
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case r < 0x7f || !moves(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

var quotedJSON = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// Strings returns doc, which is JSON, with Text in the place of each text in it, whole.
func Strings(doc []byte) []byte {
	return quotedJSON.ReplaceAllFunc(doc, func(quoted []byte) []byte {
		var text string
		if json.Unmarshal(quoted, &text) != nil {
			return quoted
		}
		shown := Text(text, len(text)+maxGrowth)
		if shown == text {
			return quoted
		}
		again, err := json.Marshal(shown)
		if err != nil {
			return quoted
		}
		return again
	})
}

// maxGrowth is more than masks make a text longer.
const maxGrowth = 1 << 12
