package outboxsql

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// TextArray returns PostgreSQL's text of a text[].
func TextArray(list []string) string {
	var b strings.Builder
	b.WriteByte('{')
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteByte('"')
		b.WriteString(quoted.Replace(s))
		b.WriteByte('"')
	}
	b.WriteByte('}')
	return b.String()
}

var quoted = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// ByteaArray returns PostgreSQL's text of a bytea[]; nil is null.
func ByteaArray(list [][]byte) string {
	size := 2
	for _, b := range list {
		size += 2*len(b) + 8
	}
	text := append(make([]byte, 0, size), '{')
	for i, b := range list {
		if i > 0 {
			text = append(text, ',')
		}
		if b == nil {
			text = append(text, "NULL"...)
			continue
		}
		text = append(text, `"\\x`...)
		text = hex.AppendEncode(text, b)
		text = append(text, '"')
	}
	return string(append(text, '}'))
}

// IntArray returns PostgreSQL's text of an int[]; nil is null.
func IntArray(list []*int32) string {
	text := append(make([]byte, 0, 2+5*len(list)), '{')
	for i, n := range list {
		if i > 0 {
			text = append(text, ',')
		}
		if n == nil {
			text = append(text, "NULL"...)
			continue
		}
		text = strconv.AppendInt(text, int64(*n), 10)
	}
	return string(append(text, '}'))
}

// BigintArray returns PostgreSQL's text of a bigint[].
func BigintArray(list []int64) string {
	text := append(make([]byte, 0, 2+8*len(list)), '{')
	for i, n := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, n, 10)
	}
	return string(append(text, '}'))
}
