package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/einmal-go/einmal/internal/redact"
)

// functions are those of the templates.
var functions = template.FuncMap{
	"address": address,
	"ago":     ago,
	"bytes":   byteCount,
	"exact":   exact,
	"hostile": hostile,
	"len64":   func(list []jobFailure) int64 { return int64(len(list)) },
	"masked":  masked,
	"line":    func(text string) string { return redact.Cut(redact.Line(text), maxName) },
	"number":  number,
	"rate":    rate,
	"seconds": seconds,
	"until":   until,
}

// address is a link from the console's root, with its parameters in pairs.
func address(path string, pairs ...string) string {
	query := make([]string, 0, len(pairs)/2)
	for i := 0; i+1 < len(pairs); i += 2 {
		query = append(query, url.QueryEscape(pairs[i])+"="+url.QueryEscape(pairs[i+1]))
	}
	if len(query) == 0 {
		return path
	}
	return path + "?" + strings.Join(query, "&")
}

// none stands where a number is not known.
const none template.HTML = `<span class="none" title="not known">–</span>`

// number shows an integer, or that it is not known, with its digits in groups.
func number(n any) (template.HTML, error) {
	switch n := n.(type) {
	case *int64:
		if n == nil {
			return none, nil
		}
		return digits(*n), nil
	case int64:
		return digits(n), nil
	case int:
		return digits(int64(n)), nil
	case int32:
		return digits(int64(n)), nil
	}
	return "", fmt.Errorf("a %T is no number", n)
}

// digits groups them by spaces that do not break.
func digits(n int64) template.HTML {
	text := strconv.FormatInt(n, 10)
	head := len(text) % 3
	if text[0] == '-' || len(text) <= 4 {
		return template.HTML(text) //nolint:gosec // digits
	}
	groups := []string{}
	if head > 0 {
		groups = append(groups, text[:head])
	}
	for ; head < len(text); head += 3 {
		groups = append(groups, text[head:head+3])
	}
	return template.HTML(strings.Join(groups, " ")) //nolint:gosec // digits
}

// rate shows so many a second.
func rate(n *float64) template.HTML {
	switch {
	case n == nil:
		return none
	case *n == 0 || *n >= 100:
		return digits(int64(math.Round(*n))) + "/s"
	}
	return template.HTML(strconv.FormatFloat(*n, 'f', 1, 64) + "/s") //nolint:gosec // digits
}

// byteCount shows a size.
func byteCount(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

// span is a duration for people, of two units at most.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%d ms", max(0, d.Milliseconds()))
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// seconds shows a number of them.
func seconds(s float64) string { return span(time.Duration(s * float64(time.Second))) }

const (
	exactForm = "2006-01-02T15:04:05.000Z07:00"
	shownForm = "2006-01-02 15:04:05 UTC"
)

// exact shows a time: in UTC, which the page's script turns into the reader's zone. The exact value stays at hand.
func exact(t any) (template.HTML, error) {
	at, err := timeIn(t)
	if err != nil || at.IsZero() {
		return none, err
	}
	return clock(at, at.UTC().Format(shownForm), "time"), nil
}

// ago shows how long ago a time was, with the time itself at hand.
func ago(t any) (template.HTML, error) {
	at, err := timeIn(t)
	if err != nil || at.IsZero() {
		return none, err
	}
	return clock(at, span(time.Since(at)), "age"), nil
}

// until shows how long it is until then.
func until(t any) (template.HTML, error) {
	at, err := timeIn(t)
	if err != nil || at.IsZero() {
		return none, err
	}
	if time.Until(at) <= 0 {
		return clock(at, "now", "age"), nil
	}
	return clock(at, "in "+span(time.Until(at)), "age"), nil
}

func clock(at time.Time, shown, kind string) template.HTML {
	stamp := at.UTC().Format(exactForm)
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s" data-show="%s">%s</time>`, stamp, stamp, kind, shown)) //nolint:gosec // digits and our words
}

func timeIn(t any) (time.Time, error) {
	switch t := t.(type) {
	case time.Time:
		return t, nil
	case *time.Time:
		return timeOf(t), nil
	}
	return time.Time{}, fmt.Errorf("a %T is no time", t)
}

// maxName is how much is shown of a text in a line, in bytes.
const maxName = 300

// hostile shows a text that strangers have written, in a line: what moves a terminal or turns the direction of writing
// is an escape that looks unlike text, and the text is isolated from what stands around it.
func hostile(text any) template.HTML {
	switch text := text.(type) {
	case string:
		return isolated(text)
	case []byte:
		return isolated(string(text))
	case template.HTML:
		return text
	}
	return isolated(fmt.Sprint(text))
}

// masked is hostile for texts of errors, whoever has stored them: without what looks like a secret.
func masked(text any) template.HTML {
	return isolated(redact.Text(fmt.Sprint(text), maxName+1))
}

// isolated shows a text up to maxName.
func isolated(text string) template.HTML {
	cut := len(text) > maxName
	if cut {
		text = text[:maxName]
		for !utf8.ValidString(text) && len(text) > maxName-utf8.UTFMax {
			text = text[:len(text)-1] // no half of a rune
		}
	}
	var b strings.Builder
	b.WriteString(`<bdi>`)
	visible(&b, text, false)
	b.WriteString(`</bdi>`)
	if cut {
		b.WriteString(`<span class="cut" title="there is more of it">…</span>`)
	}
	return template.HTML(b.String()) //nolint:gosec // visible escapes
}

// visible writes text in HTML, with an escape for each rune or byte that is not simply seen. Several lines stay lines
// if they may.
func visible(b *strings.Builder, text string, lines bool) {
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case lines && (r == '\n' || r == '\t'):
			b.WriteRune(r)
		case r == utf8.RuneError && size <= 1:
			escape(b, fmt.Sprintf(`\x%02x`, text[0]), "a byte that is no UTF-8")
		case unicode.IsControl(r):
			escape(b, strings.Trim(strconv.QuoteRuneToASCII(r), "'"), "a control character")
		case !unicode.IsGraphic(r):
			escape(b, fmt.Sprintf(`\u%04x`, r), "a character that is not seen")
		default:
			b.WriteString(template.HTMLEscapeString(text[:size]))
		}
		text = text[max(1, size):]
	}
}

func escape(b *strings.Builder, shown, why string) {
	fmt.Fprintf(b, `<span class="escape" title="%s">%s</span>`, why, shown)
}

const (
	maxValue = 64 << 10 // bytes of a value that are shown, and up to which JSON is indented
	maxHex   = 4 << 10  // bytes of it that are shown in hexadecimal
)

// content is a key, a header's value or a message's value on the page of the message.
type content struct {
	HTML template.HTML
	Form string // text, JSON, hexadecimal
	Size int
	Cut  bool // only the beginning is shown
	None bool // there is no such thing, which is not the same as an empty one
}

// contentOf shows bytes: JSON indented, text as it is, all else in hexadecimal. The cost is bounded, whatever their
// size.
func contentOf(value []byte) content {
	c := content{Size: len(value), None: value == nil, Form: "text"}
	shown := value[:min(len(value), maxValue)]
	if c.Cut = len(shown) < len(value); c.Cut {
		for i := 1; i < utf8.UTFMax && !utf8.Valid(shown); i++ {
			shown = shown[:len(shown)-1] // no half of a rune
		}
	}
	if !utf8.Valid(shown) || bytes.IndexByte(shown, 0) >= 0 {
		c.Form, c.Cut = "hexadecimal", len(value) > maxHex
		c.HTML = template.HTML(template.HTMLEscapeString(hex.Dump(value[:min(len(value), maxHex)]))) //nolint:gosec // escaped
		return c
	}
	var indent bytes.Buffer
	if start := bytes.TrimLeft(shown, " \t\r\n"); !c.Cut && len(start) > 0 && (start[0] == '{' || start[0] == '[') &&
		shallow(shown) && json.Indent(&indent, shown, "", "  ") == nil {
		c.Form, shown = "JSON", indent.Bytes()
	}
	var b strings.Builder
	visible(&b, string(shown), true)
	c.HTML = template.HTML(b.String()) //nolint:gosec // visible escapes
	return c
}

// maxNesting is how deep JSON may be that is indented: what is deeper would become many times larger.
const maxNesting = 64

func shallow(text []byte) bool {
	depth := 0
	for _, b := range text { // brackets in texts count too: such a value is shown as it is
		switch b {
		case '{', '[':
			if depth++; depth > maxNesting {
				return false
			}
		case '}', ']':
			depth--
		}
	}
	return true
}

// appendPoint appends x and y of a point in an SVG.
func appendPoint(text []byte, x, y float64) []byte {
	if len(text) > 0 {
		text = append(text, ' ')
	}
	text = strconv.AppendFloat(text, x, 'f', 1, 64)
	text = append(text, ',')
	return strconv.AppendFloat(text, y, 'f', 1, 64)
}
