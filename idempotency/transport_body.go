package idempotency

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// body is a request's body that can be sent again and again.
type body struct {
	first  io.ReadCloser                 // for the first attempt, if the caller gave it
	again  func() (io.ReadCloser, error) // nil if there is no body
	length int64                         // as in http.Request.ContentLength
}

// newBody takes over the body of req, which is closed if there is an error.
func newBody(req *http.Request, limit int64) (*body, error) {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return &body{first: req.Body, length: req.ContentLength}, nil
	case req.GetBody != nil:
		return &body{first: req.Body, again: req.GetBody, length: req.ContentLength}, nil
	}
	data, err := keep(req, limit)
	if err != nil {
		return nil, err
	}
	return &body{again: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		length: int64(len(data))}, nil
}

// keep reads the body, and closes it. The end of the request's context ends a body that does not come.
func keep(req *http.Request, limit int64) ([]byte, error) {
	stop := context.AfterFunc(req.Context(), func() { closeBody(req) })
	data, err := readUpTo(req.Body, limit)
	if !stop() {
		return nil, context.Cause(req.Context())
	}
	closeBody(req)
	return data, err
}

func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the body of the request: %w", err)
	case int64(len(data)) > limit:
		return nil, fmt.Errorf("the body of the request is longer than TransportConfig.MaxBody (%d bytes), so that it could not be "+
			"sent again: set the request's GetBody, or raise the limit", limit)
	}
	return data, nil
}

// next returns the body for an attempt; its caller gives it to a RoundTripper, which closes it.
func (b *body) next() (io.ReadCloser, error) {
	if b.again == nil {
		return b.first, nil // none
	}
	if first := b.first; first != nil {
		b.first = nil
		return first, nil
	}
	r, err := b.again()
	if err == nil && r == nil {
		err = errors.New("GetBody of the request returned nil")
	}
	return r, err
}
