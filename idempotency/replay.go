package idempotency

import (
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
)

// ReplayedHeader is the header field, with the value true, that marks an answer which was stored.
const ReplayedHeader = "Idempotent-Replayed"

// replayedByDefault are the header fields that describe what the body is, and where to find what the request has made.
var replayedByDefault = []string{
	"Accept-Ranges", "Cache-Control", "Content-Digest", "Content-Disposition", "Content-Encoding", "Content-Language",
	"Content-Location",
	"Content-Range", "Content-Type", "Etag", "Last-Modified", "Link", "Location", "Repr-Digest", "Vary",
}

// addedHeader is a field of answers that are stored, and never sent: it names the fields whose values come behind those
// of middlewares outside, and do not replace them.
const addedHeader = "Einmal-Added"

// neverReplayed are those of one connection or one moment, and those that would give a session to whoever repeats the
// request.
var neverReplayed = []string{
	"Connection", "Content-Length", "Date", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Set-Cookie", "Te",
	"Trailer",
	"Transfer-Encoding", "Upgrade", "Www-Authenticate", ReplayedHeader, addedHeader,
}

// stored returns what of a header is stored.
func stored(h http.Header, names []string) http.Header {
	kept := http.Header{}
	for _, name := range names {
		if values := h.Values(name); len(values) > 0 {
			kept[textproto.CanonicalMIMEHeaderKey(name)] = values
		}
	}
	added := slices.DeleteFunc(slices.Clone(h[addedHeader]), func(name string) bool { return !has(kept, name) })
	if len(added) > 0 {
		kept[addedHeader] = added
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
		switch {
		case name == "Trailer" || strings.HasPrefix(name, http.TrailerPrefix): // which would announce what does not come
		case replayed && name == addedHeader:
		case replayed && slices.Contains(a.Header[addedHeader], name):
			addValues(h, name, values)
		default:
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

// addValues adds those that are not there.
func addValues(h http.Header, name string, values []string) {
	for _, value := range values {
		if !slices.Contains(h[name], value) {
			h[name] = append(h[name], value)
		}
	}
}

func has(h http.Header, name string) bool {
	_, ok := h[name]
	return ok
}

func bodyAllowed(status int) bool {
	return status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}
