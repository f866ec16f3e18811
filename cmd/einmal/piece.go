package main

import (
	"encoding/base64"
	"strconv"
	"unicode/utf8"
)

// piece is a key, a value, or a header's value: text, or in base64 what is none.
type piece struct {
	Text   *string `json:"text,omitempty"`
	Base64 *string `json:"base64,omitempty"`
}

func pieceOf(b []byte) piece {
	if utf8.Valid(b) {
		return piece{Text: new(string(b))}
	}
	return piece{Base64: new(base64.StdEncoding.EncodeToString(b))}
}

func optionalPiece(b []byte) *piece {
	if b == nil {
		return nil
	}
	return new(pieceOf(b))
}

type headerFacts struct {
	Name string `json:"name"`
	piece
}

// headerOf leaves out what a header without a value has not.
func headerOf(name string, value []byte) headerFacts {
	if value == nil {
		return headerFacts{Name: name}
	}
	return headerFacts{name, pieceOf(value)}
}

// messageFacts are what an event or a dead letter has of its message, with -message.
type messageFacts struct {
	Key     *piece        `json:"key"`   // null if there is none
	Value   *piece        `json:"value"` // null if there is none: a tombstone
	Headers []headerFacts `json:"headers"`
}

func messageOf(key, value []byte) messageFacts {
	return messageFacts{Key: optionalPiece(key), Value: optionalPiece(value), Headers: []headerFacts{}}
}

// show quotes text, in which a terminal finds nothing to obey, and says what is base64.
func (p *piece) show() string {
	if p.Base64 != nil {
		return "base64 " + *p.Base64
	}
	return strconv.QuoteToGraphic(*p.Text)
}
