package idempotency

import (
	"errors"
	"fmt"
	"net/http"
)

// recorder keeps what a handler answers until the transaction is committed. It is no Flusher and no Hijacker, and has no Unwrap: there
// is nothing that may be sent before.
type recorder struct {
	header http.Header
	limit  int

	status int         // 0 until it is written
	sent   http.Header // the header as it was then
	body   []byte
	err    error // why there is no answer
}

func newRecorder(header http.Header, limit int) *recorder {
	return &recorder{header: header.Clone(), limit: limit}
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
	w.status, w.sent = status, w.header.Clone()
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
