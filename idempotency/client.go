package idempotency

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

type clientKey struct{}

// WithKey returns a context that gives its key to one call: to a request that is made with it and sent through a
// Transport. A redirect keeps the key. Derive another context for the next call, since two calls with one key are one
// call.
//
//	req, err := http.NewRequestWithContext(idempotency.WithKey(ctx, key), http.MethodPost, url, body)
//
// A key has 1 to MaxKeyLen characters of printable ASCII; the Transport refuses others before it sends anything.
func WithKey(ctx context.Context, key string) context.Context {
	return context.WithValue(ctx, clientKey{}, key)
}

// fieldValue returns the field's value for the request, and whether it has a key at all. A field that the request has
// already is sent as it is.
func (t *Transport) fieldValue(req *http.Request) (value string, ok bool, err error) {
	if own := req.Header[t.cfg.Header]; len(own) > 0 {
		return own[0], true, checkOwn(own)
	}
	key, ok := req.Context().Value(clientKey{}).(string)
	if !ok {
		return "", false, nil
	}
	if err := checkKey(key, t.cfg.Bare); err != nil {
		return "", true, err
	}
	if t.cfg.Bare {
		return key, true, nil
	}
	return `"` + escape.Replace(key) + `"`, true, nil
}

// escape is what a string of a structured field (RFC 8941, 3.3.3) needs.
var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// checkOwn looks at a field that the caller has set.
func checkOwn(values []string) error {
	switch n := len(values[0]); {
	case len(values) > 1:
		return fmt.Errorf("the request has %d idempotency keys: set one", len(values))
	case n == 0:
		return errors.New("the request's idempotency key is empty: set one, or remove the field")
	case n > MaxKeyLen+2: // quotes
		return tooLong(n)
	}
	return nil
}

func checkKey(key string, bare bool) error {
	switch {
	case key == "":
		return errors.New("the idempotency key given to WithKey is empty: derive one with Key or KeyFor")
	case len(key) > MaxKeyLen:
		return tooLong(len(key))
	}
	for i := range len(key) {
		switch c := key[i]; {
		case c < 0x20 || c > 0x7e:
			return fmt.Errorf("byte %d of the idempotency key is no printable ASCII: derive a key with Key", i)
		case bare && strings.IndexByte(` ",;\`, c) >= 0:
			return fmt.Errorf("byte %d of the idempotency key, %q, cannot be sent without quotes: derive a key with Key", i, c)
		}
	}
	return nil
}

func tooLong(n int) error {
	return fmt.Errorf("the idempotency key has %d bytes, at most %d are sent: derive one of 36 with Key", n, MaxKeyLen)
}
