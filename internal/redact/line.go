package redact

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns text with blanks for all that a terminal obeys, or that hides what stands there: control characters, C1 too, ends of
// lines, marks that turn the direction of writing, characters without width, bytes that are no UTF-8.
func Line(text string) string {
	return strings.Map(func(r rune) rune {
		if moves(r) {
			return ' '
		}
		return r
	}, text)
}

// Lines is Line, for a text of several lines.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Line(line)
	}
	return strings.Join(lines, "\n")
}

// moves reports whether a terminal does something else with r than show it.
func moves(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || r == utf8.RuneError
}

// JSON returns text, which is JSON, with escapes for all that Line would leave out, but for the blanks between its tokens.
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
