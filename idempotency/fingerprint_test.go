package idempotency

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// No byte can move from one part of a request to another one.
func TestFingerprintTellsPartsApart(t *testing.T) {
	t.Parallel()
	seen := map[[32]byte]string{}
	for _, c := range []struct{ method, path, query, mediaType, encoding, body string }{
		{"POST", "/a", "", "", "", ""}, {"POSTX", "/a", "", "", "", ""}, {"POST", "/ab", "", "", "", ""},
		{"POST", "/a", "b=", "", "", ""}, {"POST", "/a", "", "b", "", ""},
		{"POST", "/a", "", "", "b", ""}, {"POST", "/a", "", "", "", "b"}, {"POST", "/a", "", "", "bc", ""},
		{"POST", "/a", "", "", "b", "c"}, {"POST", "/a", "", "", "", "bc"},
		{"POST", "/a", "", "b", "c", ""}, {"POST", "/a", "", "bc", "", ""}, {"POST", "/a", "bc=", "", "", ""},
		{"POST", "/a", "b=", "c", "", ""},
	} {
		r := httptest.NewRequest(c.method, c.path+"?"+c.query, nil)
		for name, value := range map[string]string{"Content-Type": c.mediaType, "Content-Encoding": c.encoding} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		sum := fingerprintOf(r, []byte(c.body))
		if other, ok := seen[sum]; ok {
			t.Errorf("%+v is the same as %s", c, other)
		}
		seen[sum] = c.method + c.path + "?" + c.query + " " + c.mediaType + " " + c.encoding + " " + c.body
		own := fingerprintWith(r, []byte(c.body))
		if _, ok := seen[own]; ok && own == sum {
			t.Errorf("%+v has one fingerprint by two ways", c)
		}
	}
	a := fingerprintWith(httptest.NewRequest(http.MethodPost, "/a", nil), []byte("bc"))
	b := fingerprintWith(httptest.NewRequest(http.MethodPost, "/ab", nil), []byte("c"))
	if a == b {
		t.Error("the path and what stands for the body are one text")
	}
}
