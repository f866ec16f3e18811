package outbox

import (
	"encoding/binary"
	"errors"
)

// The column headers is empty, or a version byte and, for each header, the length of its name, its name, the length
// of its value plus one (0 for null), its value; lengths are unsigned varints.
const headersVersion = 1

var errHeaders = errors.New("the column headers was not written by package outbox")

// EncodeHeaders returns headers as they stand in the column headers.
func EncodeHeaders(headers []Header) []byte {
	if len(headers) == 0 {
		return []byte{}
	}
	b := []byte{headersVersion}
	for _, h := range headers {
		b = binary.AppendUvarint(b, uint64(len(h.Key)))
		b = append(b, h.Key...)
		if h.Value == nil {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, uint64(len(h.Value))+1)
		b = append(b, h.Value...)
	}
	return b
}

// DecodeHeaders is the inverse of EncodeHeaders. The values are parts of b.
func DecodeHeaders(b []byte) ([]Header, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != headersVersion {
		return nil, errHeaders
	}
	var headers []Header
	for b = b[1:]; len(b) > 0; {
		key, rest, ok := cutBytes(b, 0)
		if !ok {
			return nil, errHeaders
		}
		value, rest, ok := cutBytes(rest, 1)
		if !ok {
			return nil, errHeaders
		}
		headers, b = append(headers, Header{string(key), value}), rest
	}
	return headers, nil
}

// cutBytes reads a length, from which offset is taken, and so many bytes: nil if less than none.
func cutBytes(b []byte, offset uint64) (bytes, rest []byte, ok bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 {
		return nil, nil, false
	}
	b = b[size:]
	if n < offset {
		return nil, b, true
	}
	if n -= offset; n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}
