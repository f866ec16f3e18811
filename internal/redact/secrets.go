package redact

import (
	"net/url"
	"regexp"
	"strings"
)

// secrets masks what looks like a secret, also where it is encoded for a URL. cutOff is whether the text went on behind
// its end, so that one may have lost its own.
func secrets(text string, cutOff bool) string {
	text = spelled(text, cutOff)
	if !strings.ContainsAny(text, "%+") {
		return text
	}
	return encoded.ReplaceAllStringFunc(text, func(run string) string {
		decoded, err := url.QueryUnescape(run)
		if err != nil {
			return run
		}
		masked := spelled(decoded, cutOff)
		if masked == decoded {
			return run
		}
		return strings.ReplaceAll(url.QueryEscape(masked), url.QueryEscape(Masked), Masked)
	})
}

// encoded finds what may be a value in a URL in which signs are encoded, or blanks are.
var encoded = regexp.MustCompile(`[^\s"'\x60<>,\[\]&=?;/:]*(?:%[0-9A-Fa-f]{2}|\+)[^\s"'\x60<>,\[\]&=?;/:]*`)

// spelled masks secrets that are spelled as they are.
func spelled(text string, cutOff bool) string {
	text = maskEach(text, pem)
	text = userinfo(text, cutOff)
	text = named(text)
	for _, p := range shapes {
		text = p.pattern.ReplaceAllString(text, p.with)
	}
	return text
}

// name is what a secret is called: a word that says so, with whatever stands around it (client_secret, PGPASSWORD,
// secretKey), or a short one that must stand alone.
const name = `(?:[\w.]*(?:passw(?:or)?d|passphrase|passwort|secret|token|credential|api[-_ ]?key|access[-_ ]?key|private[-_ ]?key|account[-_ ]?key|auth[-_]?key|` +
	`session[-_]?id|authorization|cookie)[\w-]*|(?:\b|_)(?:pass|pwd|pw|pin|auth|sig|signature|jwt|sid|otp|cvv|cvc))`

var (
	// naming finds the name of a secret and what leads to its value: password=, "token": , Cookie: , --password , PASSWORD
	// '.
	naming = regexp.MustCompile(`(?i)` + name +
		`(?:\\*["'\x60]?\]?\s*(?:=>|:=|[:=]|%3[ad])\s*|\\*["']?\s*>|\s+(?:is\s+)?(?:["'\x60]))|(?:^|[^\w-])--?` + name +
		`\s+`)

	// wholeLine are the names of headers of HTTP whose value has blanks and separators.
	wholeLine = regexp.MustCompile(`(?i)(?:authorization|cookie)\S*\s*$`)

	scheme = regexp.MustCompile(`(?i)^(?:bearer|basic|digest|negotiate|apikey)\s+`)
)

// named masks the values of what is called a secret.
func named(text string) string {
	var b strings.Builder
	for {
		at := naming.FindStringIndex(text)
		if at == nil {
			b.WriteString(text)
			return b.String()
		}
		if at[1] == len(text) {
			b.WriteString(text)
			return b.String()
		}
		start := at[1]
		if last := text[start-1]; last == '"' || last == '\'' || last == '`' { // it opens the value
			start--
		}
		b.WriteString(text[:start])
		rest := text[start:]
		n := valueLen(rest, wholeLine.MatchString(strings.TrimRight(text[at[0]:start], "=:>[]\"'`\\ \t")))
		b.WriteString(maskedValue(rest[:n]))
		text = rest[n:]
	}
}

// maskedValue keeps the quotes and brackets of a value.
func maskedValue(value string) string {
	open := strings.TrimLeft(value, `\`)
	switch {
	case value == "":
		return ""
	case open != "" && strings.IndexByte("\"'`", open[0]) >= 0:
		quote := value[:len(value)-len(open)+1]
		return quote + Masked + quote
	case value[0] == '[':
		return "[" + Masked + "]"
	}
	return Masked
}

// valueLen is how long the value is that s begins with: to the end of its quotes or its bracket, or of the line, or of the word.
func valueLen(s string, line bool) int {
	open := strings.TrimLeft(s, `\`)
	escaped := len(s) - len(open)
	switch {
	case open == "":
		return len(s)
	case strings.IndexByte("\"'`", open[0]) >= 0:
		return quotedLen(s, escaped)
	case s[0] == '[':
		return through(s, "]")
	case line:
		if end := strings.IndexAny(s, "\r\n"); end >= 0 {
			return end
		}
		return len(s)
	}
	skip := len(scheme.FindString(s))
	if end := strings.IndexAny(s[skip:], " \t\r\n&;,\"'`<>"); end >= 0 {
		return skip + end
	}
	return len(s)
}

// quotedLen is how long what s begins with is, to the end of the quotation that begins behind so many backslashes: at its quote behind as
// many of them, or where one behind fewer ends a quotation around it.
func quotedLen(s string, escaped int) int {
	quote, run := s[escaped], 0
	for i := escaped + 1; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			run++
			continue
		case s[i] == quote && run == escaped:
			return i + 1
		case s[i] == quote && run < escaped:
			return i - run
		}
		run = 0
	}
	return len(s)
}

// through is where the first end stands behind, or the length of s.
func through(s, end string) int {
	if i := strings.Index(s, end); i >= 0 {
		return i + len(end)
	}
	return len(s)
}

// pem finds private keys; one without its end goes to the end of the text.
var pem = regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*-----|$)`)

func maskEach(text string, pattern *regexp.Regexp) string {
	return pattern.ReplaceAllLiteralString(text, Masked)
}

// shapes are secrets that show by themselves.
var shapes = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9._~+/=-]{8,}`), "${1} " + Masked},
	{regexp.MustCompile(`\beyJ[\w-]{6,}(?:\.[\w-]*)*`), Masked}, // a JWT
	{regexp.MustCompile(`\b(?:gh[opsur]_|github_pat_|glpat-|xox[abeoprs]-|sk[-_](?:live|test)[-_]|rk_live_|whsec_|npm_|hvs\.|AIza|ya29\.)[\w.-]{8,}`), Masked},
	{regexp.MustCompile(`\b(?:AKIA|ASIA)[A-Z0-9]{12,}`), Masked},
}

// userinfo masks the passwords of URLs, and of the addresses of MySQL, which are none: user:password@tcp(host)/database.
func userinfo(text string, cutOff bool) string {
	var b strings.Builder
	for {
		at := strings.Index(text, "://")
		if at < 0 {
			b.WriteString(driverAddress(text))
			return b.String()
		}
		at += len("://")
		b.WriteString(driverAddress(text[:at]))
		rest := text[at:]
		end := strings.IndexAny(rest, " \t\r\n\"'`<>|")
		open := cutOff && end < 0
		if end < 0 {
			end = len(rest)
		}
		if next := strings.Index(rest[:end], "://"); next >= 0 && strings.Contains(rest[:next], ",") { // a list of URLs
			end = strings.LastIndexByte(rest[:next], ',')
		}
		web := strings.HasSuffix(text[:at], "http://") || strings.HasSuffix(text[:at], "https://")
		b.WriteString(withoutPassword(rest[:end], web, open))
		text = rest[end:]
	}
}

// withoutPassword masks the password of what follows a URL's scheme. A password may have any sign in it, by mistake:
// what stands before the last @ is taken for one, unless it is the port of a page whose path has an @. open is whether
// the text ended in it.
func withoutPassword(s string, web, open bool) string {
	colon, host := strings.IndexByte(s, ':'), hostEnd(s)
	last := userEnd(s, web, colon, host)
	switch {
	case last < 0 && open && colon >= 0 && !digits(s[colon+1:host]):
		return s[:colon+1] + Masked
	case last < 0:
		return s
	case colon >= 0 && colon < last:
		return s[:colon+1] + Masked + s[last:]
	case web && last <= host: // a token in the place of the user
		return Masked + s[last:]
	}
	return s
}

// hostEnd is where a path, a query or a fragment begins.
func hostEnd(s string) int {
	if end := strings.IndexAny(s, "/?#"); end >= 0 {
		return end
	}
	return len(s)
}

// userEnd is the place of the @ behind user and password, or -1.
func userEnd(s string, web bool, colon, host int) int {
	last := strings.LastIndexByte(s, '@')
	if !web || last <= host {
		return last
	}
	if colon < 0 || colon > host || digits(s[colon+1:host]) { // no password before the path
		return strings.LastIndexByte(s[:host], '@')
	}
	return last
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

var driver = regexp.MustCompile(`:[^\s"'\x60]*@(tcp|unix|udp)\(`)

func driverAddress(text string) string {
	return driver.ReplaceAllString(text, ":"+Masked+"@${1}(")
}
