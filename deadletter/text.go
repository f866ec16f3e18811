package deadletter

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/einmal-go/einmal/consumer"
)

// MaxText is the length of Record.Error and RedriveError in bytes, at most.
const MaxText = 2048

// Text returns the text of err as it may stand in a Record and in lists of them: at most MaxText bytes, with what looks like a secret
// (a password in a URL or after its name, a token) and all that stands in the message itself masked: its key, its value, its headers'
// values, and whatever the text quotes that is a part of one of them, as PostgreSQL quotes a value that it refuses. What it cannot know
// is a part of the message that the text repeats without quotes.
func Text(err error, msg *consumer.Message) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	parts := partsOf(msg)
	for _, part := range parts { // before the text is cut, and with it what it repeats
		if len(part) >= leastMasked && len(part) <= len(text) {
			text = strings.ReplaceAll(text, string(part), masked)
		}
	}
	whole := len(text) <= longest
	text = maskSecrets(cut(text, longest))
	text = maskQuoted(text, parts)
	if !whole {
		text = maskTail(text, parts)
	}
	return cut(text, MaxText)
}

// longest is how much of a text is looked at for what it quotes.
const longest = 4 * MaxText

// mostQuotes bounds how often a large message is searched for the end of a text.
const mostQuotes = 100

const masked = "***"

var secrets = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(://[^\s/:@]*):[^\s/@]+@`), "${1}:" + masked + "@"},
	{regexp.MustCompile(`(?i)\b(pass(?:word|wd)?|pwd|secret|token|api[-_]?key|access[-_]?key|authorization)(\\?["']?\s*[:=]\s*)(?:(?:bearer|basic)\s+)?(\\?"[^"]*"|'[^']*'|[^\s,;&]+)`), "${1}${2}" + masked},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}`), "${1} " + masked},
}

func maskSecrets(text string) string {
	for _, s := range secrets {
		text = s.pattern.ReplaceAllString(text, s.with)
	}
	return text
}

// leastMasked is how long a part of a message must be to be masked wherever it stands: shorter ones stand in any text.
const leastMasked = 4

func partsOf(msg *consumer.Message) (parts [][]byte) {
	if msg == nil {
		return nil
	}
	parts = [][]byte{msg.Key, msg.Value}
	for _, h := range msg.Headers {
		parts = append(parts, h.Value)
	}
	return parts
}

func maskQuoted(text string, parts [][]byte) string {
	return quoted.ReplaceAllStringFunc(text, func(q string) string {
		if stands(q[1:len(q)-1], parts) {
			return q[:1] + masked + q[len(q)-1:]
		}
		return q
	})
}

// maskTail masks a quotation whose end has been cut off.
func maskTail(text string, parts [][]byte) string {
	quotes := 0
	for i, c := range []byte(text) {
		if c != '"' && c != '\'' && c != '`' {
			continue
		}
		if quotes++; quotes > mostQuotes {
			break
		}
		if tail := strings.TrimSuffix(strings.TrimRight(text[i+1:], "?"), `\`); len(tail) >= leastMasked && stands(tail, parts) { // a character may be cut, too
			return text[:i+1] + masked
		}
	}
	return text
}

// stands reports whether what was quoted is a part of the message.
func stands(inner string, parts [][]byte) bool {
	inner = strings.ReplaceAll(inner, `\"`, `"`)
	for _, part := range parts {
		if inner != "" && bytes.Contains(part, []byte(inner)) {
			return true
		}
	}
	return false
}

// quoted finds what stands between two equal quotes.
var quoted = regexp.MustCompile(`"(?:\\"|[^"])*"|'[^']*'|` + "`[^`]*`")

// cut shortens s to limit bytes, and makes it what every database takes for text.
func cut(s string, limit int) string {
	s = strings.ToValidUTF8(s[:min(len(s), limit)], "?")
	return strings.ReplaceAll(s, "\x00", "?")
}
