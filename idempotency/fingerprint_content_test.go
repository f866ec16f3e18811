package idempotency_test

import (
	"bytes"
	"compress/gzip"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/einmal-go/einmal/idempotency"
)

type content struct{ mediaType, encoding, body string }

func (c content) fingerprint() string {
	r := httptest.NewRequest(http.MethodPost, "/", nil)
	r.Header.Set("Content-Type", c.mediaType)
	if c.encoding != "" {
		r.Header.Set("Content-Encoding", c.encoding)
	}
	return string(idempotency.ContentFingerprint(r, []byte(c.body)))
}

func packed(text string, at time.Time, level int) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, level)
	w.ModTime = at
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func form(boundary string, parts ...string) content {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	_ = w.SetBoundary(boundary)
	for _, part := range parts {
		name, value, _ := strings.Cut(part, "=")
		_ = w.WriteField(name, value)
	}
	_ = w.Close()
	return content{w.FormDataContentType(), "", b.String()}
}

// What is one request to who reads it is one here, and what may be two is not.
func TestContentFingerprint(t *testing.T) {
	t.Parallel()
	const js = "application/json"
	order := `{"a":1,"b":[1,2,{"c":"é"}],"d":null}`
	for name, same := range map[string][]content{
		"JSON": {
			{js, "", order}, {js, "", " { \"d\" : null , \"b\":[1,2,\n{\"c\":\"\\u00e9\"}],\"a\":1}\n"},
			{js + "; charset=UTF-8", "", order}, {"Application/JSON;charset=\"utf-8\"", "", order},
		},
		"JSON of a kind": {{"application/merge-patch+json", "", `{"a":1,"b":2}`},
			{"application/merge-patch+json;charset=utf-8", "", `{"b":2,"a":1}`}},
		"no object": {{js, "", `"a"`}, {js, "", ` "\u0061" `}},
		"multipart": {form("one", "a=1", "b=2"), form("another", "a=1", "b=2")},
		"gzip": {{"text/plain", "gzip", packed("hello", time.Unix(1, 0), 1)},
			{"text/plain", "GZIP", packed("hello", time.Unix(9, 0), 9)}},
		"gzip of JSON": {{js, "gzip", packed(`{"a":1,"b":2}`, time.Unix(1, 0), 1)},
			{js, "gzip", packed(`{"b":2, "a":1}`, time.Unix(2, 0), 9)}},
		"bytes":              {{"text/plain", "", "a"}, {"Text/Plain", "", "a"}},
		"no media type":      {{"", "", "a"}, {"", "", "a"}},
		"a broken one":       {{js, "", `{"a":`}, {js, "", `{"a":`}},
		"not packed, broken": {{js, "gzip", "{}"}, {js, "gzip", "{}"}},
	} {
		for _, c := range same[1:] {
			if c.fingerprint() != same[0].fingerprint() {
				t.Errorf("%s: %q and %q differ", name, same[0], c)
			}
		}
	}
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	seen := map[string]content{}
	for _, c := range []content{
		{js, "", order}, {js, "", `{"a":1.0,"b":[1,2,{"c":"é"}],"d":null}`}, {js, "", `{"a":1,"b":[2,1,{"c":"é"}],"d":null}`},
		{js, "", `{"a":1,"b":[1,2,{"c":"é"}]}`},
		{js, "", `{"a":"1"}`}, {js, "", `{"a":1}`}, {js, "", `{"a":1,"a":1}`}, {js, "", `{"a":2,"a":1}`},
		{js, "", `{"a":1,"\u0061":1}`}, {js, "", `{"A":1}`}, {js, "", `[{"a":1}]`},
		{js, "", `"\ud800"`}, {js, "", `"\ud801"`}, {js, "", "\"\ufffd\""}, {js, "", "\"\xff\""}, {js, "", "\"\xfe\""},
		{js, "", `{"a":1} {"b":2}`}, {js, "", `{"a":1} x`}, {js, "", `{"a":1}]`},
		{js, "", ``}, {js, "", `null`}, {js, "", `{}`}, {js, "", `[]`}, {js, "", `{"a":`}, {js, "", deep},
		{js, "", deep + " "}, {js, "", `12345678901234567890`}, {js, "", `12345678901234567891`},
		{js + ";charset=utf-16", "", `{"a":1}`}, {js + ";charset=utf-16", "", `{"a": 1}`}, {"text/json", "", `{"a":1}`},
		{"text/json", "", `{"a": 1}`},
		{js, "br", `{"a":1}`}, {js, "br", `{"a": 1}`}, {js, "gzip", `{"a":1}`},
		{js, "gzip", packed(`{"a":1}`, time.Time{}, 1)}, {js, "identity", `{"a":1}`},
		{"text/plain", "gzip", packed("hello", time.Time{}, 1)}, {"text/plain", "", "hello"},
		{"text/plain", "gzip", packed("hello!", time.Time{}, 1)},
		{"text/plain", "gzip", packed("hello", time.Time{}, 1) + "x"},
		{"text/plain", "gzip", packed("hello", time.Time{}, 1)[:20]}, {"text/html", "", "hello"},
		form("one", "a=1", "b=2"), form("one", "b=2", "a=1"), form("one", "a=1"), form("one", "a=1", "b=3"),
		form("one", "a=1", "c=2"), form("one", "a=1b", "=2"),
		{"multipart/mixed; boundary=one", "", form("one", "a=1", "b=2").body},
		{"multipart/form-data", "", form("one", "a=1").body},
		{"multipart/form-data; boundary=two", "", form("one", "a=1").body},
	} {
		f := c.fingerprint()
		if other, ok := seen[f]; ok {
			t.Errorf("%.200q and %.200q are one", other, c)
		}
		seen[f] = c
	}
	bomb := content{"text/plain", "gzip", packed(strings.Repeat("0", 20<<20), time.Unix(1, 0), 9)}
	if again := (content{"text/plain", "gzip", packed(strings.Repeat("0", 20<<20), time.Unix(2, 0),
		9)}); again.fingerprint() == bomb.fingerprint() {
		t.Error("a body of 20 MiB was unpacked")
	}
}
