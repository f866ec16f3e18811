package idempotency

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxUnpacked is how many bytes of a body that is packed are looked into.
const maxUnpacked = 16 << 20

// ContentFingerprint is a HandlerConfig.Fingerprint for clients that write the same request in other bytes when they
// repeat it:
//
//   - JSON (application/json, and types that end in +json): fields come in any order, with any blanks, and texts with any escapes, whatever
//     charset says that is UTF-8. Numbers are compared as they are spelled. What is not one value of JSON, or names a field of an object
//     twice, is compared byte by byte;
//   - multipart: the boundary, which clients draw anew, does not count. The parts do, in their order, with all of their headers;
//   - gzip: the time and the name in its header, and how well it is packed, do not count.
//
// All else is compared byte by byte, as it is by default.
func ContentFingerprint(r *http.Request, body []byte) []byte {
	mediatype, encoding := r.Header.Get("Content-Type"), r.Header.Get("Content-Encoding")
	if unpacked, ok := unpack(encoding, body); ok {
		encoding, body = "gzip, unpacked", unpacked
	}
	typ, params, err := mime.ParseMediaType(mediatype)
	content := func() ([]byte, bool) { return nil, false }
	switch {
	case err != nil:
	case encoding != "" && encoding != "gzip, unpacked":
	case typ == "application/json" || strings.HasSuffix(typ, "+json"):
		content = func() ([]byte, bool) { return canonicalJSON(params, body) }
	case strings.HasPrefix(typ, "multipart/"):
		content = func() ([]byte, bool) { return partsOf(params, body) }
	}
	if canonical, ok := content(); ok {
		return sum("content", typ, encoding, canonical)
	}
	return sum("bytes", mediaType(mediatype), encoding, body)
}

func sum(how, typ, encoding string, content []byte) []byte {
	all := hashOf(how, []byte(typ), []byte(encoding), content)
	return all[:]
}

// unpack returns what is in a body of gzip that is sound and not too large.
func unpack(encoding string, body []byte) ([]byte, bool) {
	if !strings.EqualFold(strings.TrimSpace(encoding), "gzip") {
		return nil, false
	}
	from, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return nil, false
	}
	data, err := io.ReadAll(io.LimitReader(from, maxUnpacked+1))
	return data, err == nil && len(data) <= maxUnpacked
}

// canonicalJSON writes the one value of a body in one spelling. Not ok is what readers might understand differently.
func canonicalJSON(params map[string]string, body []byte) ([]byte, bool) {
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") || !utf8.Valid(body) {
		return nil, false
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	value, err := jsonValue(decoder, 0)
	if err != nil {
		return nil, false
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, false
	}
	canonical, err := json.Marshal(value) // which sorts the names
	return canonical, err == nil
}

var errAmbiguous = errors.New("readers may differ")

// maxDepth is how deep JSON may be nested here.
const maxDepth = 1000

// jsonValue reads a value as Unmarshal does, but refuses objects that name a field twice, and texts of which not all is
// text.
func jsonValue(d *json.Decoder, depth int) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case string:
		if strings.ContainsRune(t, utf8.RuneError) {
			return nil, errAmbiguous
		}
	case json.Delim:
		if depth > maxDepth {
			return nil, errAmbiguous
		}
		if t == '[' {
			return jsonList(d, depth)
		}
		return jsonObject(d, depth)
	}
	return token, nil
}

func jsonList(d *json.Decoder, depth int) (any, error) {
	list := []any{}
	for d.More() {
		value, err := jsonValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, err := d.Token()
	return list, err
}

func jsonObject(d *json.Decoder, depth int) (any, error) {
	object := map[string]any{}
	for d.More() {
		name, err := jsonValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		text, _ := name.(string) // what More lets pass before a colon
		if _, twice := object[text]; twice {
			return nil, errAmbiguous
		}
		if object[text], err = jsonValue(d, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := d.Token()
	return object, err
}

// partsOf writes the parts of a body without what stands between them.
func partsOf(params map[string]string, body []byte) ([]byte, bool) {
	from := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	var parts []byte
	for {
		part, err := from.NextRawPart()
		if err == io.EOF { //nolint:errorlint // as it is documented
			return parts, true
		}
		if err != nil {
			return nil, false
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, false
		}
		fields := [][]byte{data}
		for name, values := range part.Header {
			for _, value := range values {
				fields = append(fields, []byte(name+": "+value))
			}
		}
		slices.SortFunc(fields[1:], bytes.Compare)
		digest := hashOf("part", fields...)
		parts = append(parts, digest[:]...)
	}
}
