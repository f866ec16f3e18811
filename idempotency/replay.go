package idempotency

import (
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// ReplayedHeader is the header field, with the value true, that marks an answer which was stored.
const ReplayedHeader = "Idempotent-Replayed"

// replayedByDefault are the header fields that describe what the body is, and where to find what the request has made.
var replayedByDefault = []string{
	"Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Location", "Content-Type",
	"Etag", "Last-Modified", "Link", "Location", "Vary",
}

// neverReplayed are those of one connection or one moment, and those that would give a session to whoever repeats the request.
var neverReplayed = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Set-Cookie", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Www-Authenticate", ReplayedHeader,
}

// stored returns what of a header is stored.
func stored(h http.Header, names []string) http.Header {
	kept := http.Header{}
	for _, name := range names {
		if values := h.Values(name); len(values) > 0 {
			kept[textproto.CanonicalMIMEHeaderKey(name)] = values
		}
	}
	return kept
}

// send writes an answer to the client.
func send(w http.ResponseWriter, r *http.Request, a *Answer, replayed bool) {
	h := w.Header()
	if !replayed { // the handler began with it, and what it has deleted is to be gone
		maps.DeleteFunc(h, func(name string, _ []string) bool { return !has(a.Header, name) })
	}
	for name, values := range a.Header {
		if name != "Trailer" && !strings.HasPrefix(name, http.TrailerPrefix) { // which would announce what does not come
			h[name] = values
		}
	}
	switch {
	case bodyAllowed(a.Status) && r.Method != http.MethodHead:
		h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	case a.Status == http.StatusNoContent:
		h.Del("Content-Length")
	}
	if replayed {
		h.Set(ReplayedHeader, "true")
	}
	w.WriteHeader(a.Status)
	if len(a.Body) > 0 {
		_, _ = w.Write(a.Body) // a client that is gone comes again
	}
}

func has(h http.Header, name string) bool {
	_, ok := h[name]
	return ok
}

func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}
