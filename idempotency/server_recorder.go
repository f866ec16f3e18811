package idempotency

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
)

// recorder keeps what a handler answers until the transaction is committed. It is no Flusher and no Hijacker, and has
// no Unwrap: there is nothing that may be sent before.
type recorder struct {
	outer  http.Header // of the middlewares outside
	began  http.Header // what the handler found: outer's values, in memory of their own
	header http.Header
	limit  int

	status int         // 0 until it is written
	sent   http.Header // the header as it was then
	own    http.Header // what of it the handler has written, see ownHeader
	body   []byte
	err    error // why there is no answer
}

func newRecorder(outer http.Header, limit int) *recorder {
	header := outer.Clone()
	return &recorder{outer: outer, began: maps.Clone(header), header: header, limit: limit}
}

// Header implements http.ResponseWriter.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter. Informational answers are dropped.
func (w *recorder) WriteHeader(status int) {
	switch {
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %v", status)) // as net/http does
	case status == http.StatusSwitchingProtocols:
		w.fail(errors.New("the handler answered 101 Switching Protocols, which cannot be stored: serve that without idempotency.Handler"))
	case status < http.StatusOK || w.status != 0:
		return
	}
	w.status, w.sent, w.own = status, w.header.Clone(), w.ownHeader()
	for name, values := range w.sent {
		w.limit -= len(name)
		for _, value := range values {
			w.limit -= len(value)
		}
	}
	_ = w.check() // run looks at err
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !bodyAllowed(w.status) {
		return 0, http.ErrBodyNotAllowed
	}
	if w.limit -= len(b); w.check() != nil {
		return 0, w.err
	}
	w.body = append(w.body, b...)
	return len(b), nil
}

func (w *recorder) check() error {
	if w.limit < 0 {
		w.fail(errors.New("the answer is larger than HandlerConfig.MaxAnswer: raise it, or answer with a link"))
	}
	return w.err
}

// fail keeps the first reason.
func (w *recorder) fail(err error) {
	if w.err == nil {
		w.err = err
	}
}

// answer is what was written: 200 and nothing, if nothing was.
func (w *recorder) answer() Answer {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	return Answer{Status: w.status, Header: w.sent, Body: w.body}
}

// ownHeader is what the handler has written of the header: fields that it has set, and the values that it has added to
// fields of middlewares outside. addedHeader names the latter, and those of lists to which others add.
func (w *recorder) ownHeader() http.Header {
	own := http.Header{}
	var added []string
	for name, values := range w.header {
		began, outer := w.began[name], w.outer[name]
		switch n := len(began); {
		case sameMemory(began, values) && slices.Equal(values, outer):
			continue
		case n > 0 && len(values) > n && slices.Equal(values[:n], outer):
			own[name] = slices.Clone(values[n:])
			added = append(added, name)
		default:
			own[name] = slices.Clone(values)
			if n == 0 && (name == "Vary" || name == "Link") {
				added = append(added, name)
			}
		}
	}
	if len(added) > 0 {
		slices.Sort(added)
		own[addedHeader] = added
	}
	return own
}

// sameMemory reports whether nobody has set the field anew.
func sameMemory(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
