package deadletter

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/einmal-go/einmal/consumer"
)

// header is a record header in a row, written so that it can be read, searched and edited where it is text:
//
//	[{"key": "event-id", "text": "e1"}, {"key": "raw", "base64": "AAE="}, {"key": "none"}]
type header struct {
	Key    *string `json:"key,omitempty"`
	Key64  []byte  `json:"key64,omitempty"` // a key that is no text
	Text   *string `json:"text,omitempty"`
	Base64 *[]byte `json:"base64,omitempty"`
}

// EncodeHeaders returns the headers as a JSON text, for the tables' implementations. Nothing is lost: not their order,
// repeated keys, nor bytes that are no text.
func EncodeHeaders(headers []consumer.Header) string {
	list := make([]header, len(headers))
	for i, h := range headers {
		if isText(h.Key) {
			list[i].Key = &h.Key
		} else {
			list[i].Key64 = []byte(h.Key)
		}
		switch {
		case h.Value == nil:
		case isText(string(h.Value)):
			text := string(h.Value)
			list[i].Text = &text
		default:
			list[i].Base64 = &h.Value
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings and bytes can be marshalled
	}
	return string(text)
}

// isText reports whether JSON, and jsonb, can hold s as it is.
func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// DecodeHeaders is the reverse of EncodeHeaders. The error wraps ErrUnreadable, and does not repeat the text.
func DecodeHeaders(text string) ([]consumer.Header, error) {
	var list []header
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("%w: headers must be a JSON list of objects with key and text, or base64 (%T)", ErrUnreadable,
			err)
	}
	headers := make([]consumer.Header, len(list))
	for i, h := range list {
		switch {
		case h.Key != nil:
			headers[i].Key = *h.Key
		case h.Key64 != nil:
			headers[i].Key = string(h.Key64)
		default:
			headers[i].Key = ""
		}
		switch {
		case h.Text != nil:
			headers[i].Value = []byte(*h.Text)
		case h.Base64 != nil:
			headers[i].Value = *h.Base64
		}
	}
	return headers, nil
}
