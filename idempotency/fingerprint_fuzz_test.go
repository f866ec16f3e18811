package idempotency

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/einmal-go/einmal/internal/fuzztest"
)

// FuzzFingerprint looks for bodies whose fingerprint takes too much, differs from itself, or takes what is not the same
// for the same.
func FuzzFingerprint(f *testing.F) {
	f.Add("application/json", "", []byte(`{"a":1,"b":[1.0,"x"]}`), []byte(`{"b":[1.0,"x"],"a":1}`))
	f.Add("application/json", "gzip",
		[]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"), []byte{})
	f.Add("multipart/form-data; boundary=x", "",
		[]byte("--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--\r\n"), []byte("--x--"))
	f.Add("application/json", "", bytes.Repeat([]byte("["), 5000), []byte("{}"))
	f.Add("; ; =", "gzip, br", []byte{0xff}, []byte(nil))
	f.Fuzz(func(t *testing.T, mediatype, encoding string, one, other []byte) {
		of := func(body []byte) (bytewise [32]byte, content string) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/pay", nil)
			r.Header["Content-Type"], r.Header["Content-Encoding"] = []string{mediatype}, []string{encoding}
			fuzztest.Bounded(t, len(body)+len(mediatype)+len(encoding), 20*maxUnpacked, func() {
				bytewise, content = fingerprintOf(r, body), string(ContentFingerprint(r, body))
			})
			return bytewise, content
		}
		a, contentA := of(one)
		again, contentAgain := of(bytes.Clone(one))
		b, contentB := of(other)
		if a != again || contentA != contentAgain {
			t.Errorf("%q has two fingerprints", one)
		}
		if same := bytes.Equal(one, other); same != (a == b) || same && contentA != contentB {
			t.Errorf("%q and %q: %v and %v", one, other, a == b, contentA == contentB)
		}
	})
}
