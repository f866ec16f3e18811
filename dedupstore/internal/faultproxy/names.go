package faultproxy

import (
	"bytes"
	"strings"
)

// names are the texts of a connection's prepared statements by their names.
type names map[string]string

// sqlOf returns the text that a client's message has the server run, in lower case, or "". It learns the texts that are
// prepared.
func (n names) sqlOf(message []byte) string {
	if n == nil {
		return ""
	}
	switch body := message[head:]; message[0] {
	case 'Q': // Query
		sql, _ := cstring(body)
		return strings.ToLower(sql)
	case 'P': // Parse
		name, rest := cstring(body)
		sql, _ := cstring(rest)
		n[name] = strings.ToLower(sql)
	case 'B': // Bind
		_, rest := cstring(body)
		name, _ := cstring(rest)
		return n[name]
	}
	return ""
}

func cstring(b []byte) (text string, rest []byte) {
	before, after, _ := bytes.Cut(b, []byte{0})
	return string(before), after
}

// isEnd tells the message that ends each answer: ReadyForQuery, or, while a connection begins, a request for a
// password.
func isEnd(message []byte) bool {
	return message[0] == 'Z' || message[0] == 'R' && !bytes.Equal(message[head:head+4], []byte{0, 0, 0, 0})
}
