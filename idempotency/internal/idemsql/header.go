package idemsql

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
)

// encodeHeader makes the lines that are sent of a header. Control characters, which no line may have and decodeHeader
// refuses, become blanks: an answer that is stored must be one that can be replayed.
func encodeHeader(h http.Header) []byte {
	clean := make(http.Header, len(h))
	for name, values := range h {
		for _, value := range values {
			clean[name] = append(clean[name], printable(value))
		}
	}
	var lines bytes.Buffer
	_ = clean.Write(&lines) // which a buffer takes
	return append([]byte{}, lines.Bytes()...)
}

func printable(value string) string {
	b := []byte(value)
	for i, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			b[i] = ' '
		}
	}
	return string(b)
}

var errHeader = errors.New("the stored headers cannot be read")

func decodeHeader(lines []byte) (http.Header, error) {
	h, err := textproto.NewReader(bufio.NewReader(io.MultiReader(bytes.NewReader(lines),
		bytes.NewReader([]byte("\r\n"))))).ReadMIMEHeader()
	if err != nil {
		return nil, errHeader // whose own text repeats them
	}
	return http.Header(h), nil
}
