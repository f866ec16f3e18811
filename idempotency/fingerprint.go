package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"mime"
	"net/http"
	"net/url"
)

// fingerprintOf hashes what the answer depends on: method, path, query, media type, encoding and body. The path is the
// one that the client sent, whatever a mux has cut off; parameters of the query may come in any order, but those of one
// name. The body is compared byte by byte: clients repeat the bytes that they sent.
func fingerprintOf(r *http.Request, body []byte) (sum [sha256.Size]byte) {
	path, query := targetOf(r)
	return hashOf("einmal idempotency fingerprint 1", []byte(r.Method), []byte(path), []byte(query),
		[]byte(mediaType(r.Header.Get("Content-Type"))), []byte(r.Header.Get("Content-Encoding")), body)
}

// fingerprintWith hashes method, path, query, and what stands for the body.
func fingerprintWith(r *http.Request, content []byte) (sum [sha256.Size]byte) {
	path, query := targetOf(r)
	return hashOf("einmal idempotency fingerprint 2", []byte(r.Method), []byte(path), []byte(query), content)
}

// hashOf hashes parts, each behind its length.
func hashOf(name string, parts ...[]byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, part := range append([][]byte{[]byte(name)}, parts...) {
		_ = binary.Write(h, binary.BigEndian, uint64(len(part))) // a hash takes all
		_, _ = h.Write(part)
	}
	h.Sum(sum[:0])
	return sum
}

func targetOf(r *http.Request) (path, query string) {
	u := r.URL
	if sent, err := url.ParseRequestURI(r.RequestURI); err == nil {
		u = sent
	}
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return u.EscapedPath(), u.RawQuery
	}
	return u.EscapedPath(), values.Encode()
}

// mediaType is the type with its parameters in one spelling.
func mediaType(value string) string {
	typ, params, err := mime.ParseMediaType(value)
	if err != nil {
		return value
	}
	if formatted := mime.FormatMediaType(typ, params); formatted != "" {
		return formatted
	}
	return value
}
