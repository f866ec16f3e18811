package idempotency

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

var errMissingKey = errors.New("the request has no Idempotency-Key")

// keyOf returns the key of a request: a String of RFC 8941, in double quotes, or the bare text, which many clients
// send. The two are one key. The error repeats nothing of it.
func keyOf(h http.Header) (string, error) {
	values := h.Values(defaultHeader)
	switch len(values) {
	case 0:
		return "", errMissingKey
	case 1:
		return parseKey(values[0])
	}
	return "", fmt.Errorf("there are %d fields of that name: send one", len(values))
}

func parseKey(value string) (key string, err error) {
	value = strings.Trim(value, " \t")
	if strings.HasPrefix(value, `"`) {
		key, err = unquote(value)
	} else {
		key, err = bare(value)
	}
	switch {
	case err != nil:
		return "", err
	case key == "":
		return "", errors.New("the key is empty: send one of 1 to 255 characters")
	case len(key) > MaxKeyLen:
		return "", fmt.Errorf("the key has %d characters: at most %d are allowed", len(key), MaxKeyLen)
	}
	return key, nil
}

// parameters are those of RFC 8941, 3.1.2. Their values are strings, or what has neither blanks nor a sign that ends a
// value.
var parameters = regexp.MustCompile(`\A(?: *; *[a-z*][a-z0-9_.*-]*(?:=(?:"(?:[ !#-\[\]-~]|\\["\\])*"|[^\x00-\x20\x7f-\xff";,\\]+))?)*\z`)

// unquote reads an sf-string. What may follow one, parameters, has no meaning here, and is ignored; another value has
// none anywhere.
func unquote(value string) (string, error) {
	key := make([]byte, 0, len(value))
	for i := 1; i < len(value); i++ {
		switch c := value[i]; {
		case c == '"' && parameters.MatchString(value[i+1:]):
			return string(key), nil
		case c == '"':
			return "", errors.New("something follows the closing quote that is no parameter: send one quoted text")
		case c == '\\':
			i++
			if i == len(value) || value[i] != '"' && value[i] != '\\' {
				return "", errors.New(`a backslash must be followed by a quote or a backslash`)
			}
			key = append(key, value[i])
		case c < ' ' || c > '~':
			return "", errors.New("the key has characters that are not printable ASCII: encode them, or use a UUID")
		default:
			key = append(key, c)
		}
	}
	return "", errors.New("the closing quote is missing")
}

// bare takes what cannot be anything else than one value: a proxy that joins two fields puts a comma between them.
func bare(value string) (string, error) {
	for i := range len(value) {
		switch c := value[i]; {
		case c <= ' ' || c > '~':
			return "", errors.New("the key has characters that are not printable ASCII, or blanks: put it in quotes, or use a UUID")
		case strings.IndexByte(`",;\`, c) >= 0:
			return "", fmt.Errorf("a key without quotes must not contain %q: put it in quotes, or use a UUID", string(c))
		}
	}
	return value, nil
}
