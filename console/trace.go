package console

import (
	"encoding/hex"
	"html/template"
	"net/url"
	"strings"

	"github.com/einmal-go/einmal/consumer"
)

// tracePlace is what a trace's id stands for in Config.TraceURL.
const tracePlace = "{trace_id}"

// isTraceURL reports whether a text is what Config.TraceURL may be: an address of the web, in whose path, query or
// fragment there is a place for the id.
func isTraceURL(text string) bool {
	before, after, ok := strings.Cut(text, tracePlace)
	at, err := url.Parse(before)
	whole, wholeErr := url.Parse(before + after)
	return ok && err == nil && wholeErr == nil && at.Host != "" && at.User == nil && at.Host == whole.Host &&
		(at.Path != "" || at.RawQuery != "" || at.Fragment != "") && (at.Scheme == "https" || at.Scheme == "http")
}

// traceLink leads to a trace; "" if there is no address for it, or the id is none.
func (c *Console) traceLink(id string) template.URL {
	if c.cfg.TraceURL == "" || !isTraceID(id) {
		return ""
	}
	at := strings.ReplaceAll(c.cfg.TraceURL, tracePlace, id)
	return template.URL(at) //nolint:gosec // New has checked the address, and the id is hexadecimal
}

// isTraceID reports whether a text is the id of a trace, as W3C's Trace Context writes it.
func isTraceID(id string) bool {
	const length, none = 32, "00000000000000000000000000000000"
	if len(id) != length || id == none || strings.ToLower(id) != id {
		return false
	}
	_, err := hex.DecodeString(id)
	return err == nil
}

// traceID is that of the header traceparent (W3C); "" if there is none.
func traceID(msg *consumer.Message) string {
	value, _ := msg.Header("traceparent")
	parts := strings.Split(string(value[:min(len(value), 100)]), "-") //nolint:mnd // its form has 55 bytes
	if len(parts) < 4 || !isTraceID(parts[1]) {
		return ""
	}
	return parts[1]
}
