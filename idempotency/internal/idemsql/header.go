package idemsql

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
)

// encodeHeader makes the lines that are sent of a header.
func encodeHeader(h http.Header) []byte {
	var lines bytes.Buffer
	_ = h.Write(&lines) // which a buffer takes
	return append([]byte{}, lines.Bytes()...)
}

var errHeader = errors.New("the stored headers cannot be read")

func decodeHeader(lines []byte) (http.Header, error) {
	h, err := textproto.NewReader(bufio.NewReader(io.MultiReader(bytes.NewReader(lines), bytes.NewReader([]byte("\r\n"))))).ReadMIMEHeader()
	if err != nil {
		return nil, errHeader // whose own text repeats them
	}
	return http.Header(h), nil
}
