package redact

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
)

// Message returns at most limit bytes of text, as Text does, and without what it repeats of the parts of a message:
// each part of at least 4 bytes wherever it stands, whatever 12 bytes of a part in a row, and what the text quotes that
// is in a part, as PostgreSQL quotes a value that it refuses. What it cannot know is a shorter piece of a part without
// quotes.
func Message(text string, parts [][]byte, limit int) string {
	cutOff := len(text) > looked*limit
	text = Cut(text, looked*limit)
	text = repeats(text, parts, cutOff)
	text = secrets(text, cutOff)
	return Cut(text, limit)
}

const (
	// leastPart is how long a part of a message must be to be masked wherever it stands: shorter ones stand in any text.
	leastPart = 4

	// leastPiece is how long a piece of one must be.
	leastPiece = 12

	// mostSearched bounds how many bytes of a large message are searched for what a text quotes. What follows in quotes is
	// masked without a look.
	mostSearched = 64 << 20
)

// repeats masks what text repeats of parts.
func repeats(text string, parts [][]byte, cutOff bool) string {
	if text == "" || !slices.ContainsFunc(parts, func(p []byte) bool { return len(p) > 0 }) {
		return text
	}
	hidden := make([]bool, len(text))
	hidePieces(text, parts, hidden)
	hideShort(text, parts, hidden)
	if cutOff { // a piece may have begun here
		hide(hidden, max(0, len(text)-leastPiece), len(text))
	}
	hideQuoted(text, parts, hidden)
	return withMasks(text, hidden)
}

func hide(hidden []bool, from, until int) {
	for i := from; i < until; i++ {
		hidden[i] = true
	}
}

// withMasks puts a mask in the place of each run of what is hidden.
func withMasks(text string, hidden []bool) string {
	var b strings.Builder
	for i := range len(text) {
		switch {
		case !hidden[i]:
			b.WriteByte(text[i])
		case i == 0 || !hidden[i-1]:
			b.WriteString(Masked)
		}
	}
	return b.String()
}

// hidePieces hides what is a piece of a part.
func hidePieces(text string, parts [][]byte, hidden []bool) {
	if len(text) < leastPiece {
		return
	}
	at := map[string][]int{}
	var known filter
	for i := 0; i+leastPiece <= len(text); i++ {
		piece := text[i : i+leastPiece]
		at[piece] = append(at[piece], i)
		known.add(hashOf([]byte(piece)))
	}
	for _, part := range parts {
		eachPiece(part, func(hash uint64, piece []byte) {
			if !known.has(hash) {
				return
			}
			for _, i := range at[string(piece)] {
				hide(hidden, i, i+leastPiece)
			}
			delete(at, string(piece))
		})
	}
	showSigns(text, hidden)
}

// showSigns shows the signs around words that are hidden: a quote or a colon before them stands in the text, too.
func showSigns(text string, hidden []bool) {
	for from := 0; from < len(text); from++ {
		if !hidden[from] {
			continue
		}
		until := from
		for until < len(text) && hidden[until] {
			until++
		}
		run := text[from:until]
		if words := strings.TrimLeft(run, signs); words != "" {
			for i := range run[:len(run)-len(words)] {
				hidden[from+i] = false
			}
			for i := from + len(strings.TrimRight(run, signs)); i < until; i++ {
				hidden[i] = false
			}
		}
		from = until
	}
}

const signs = " \t\n:;,.'\"`()[]{}"

// prime is the base of the rolling hash, and leaving what a byte has in it that leaves the window.
const prime = 1099511628211

var leaving = func() uint64 {
	h := uint64(1)
	for range leastPiece - 1 {
		h *= prime
	}
	return h
}()

func hashOf(piece []byte) (h uint64) {
	for _, c := range piece {
		h = h*prime + uint64(c)
	}
	return h
}

// eachPiece calls do with each piece of part.
func eachPiece(part []byte, do func(hash uint64, piece []byte)) {
	if len(part) < leastPiece {
		return
	}
	h := hashOf(part[:leastPiece])
	do(h, part[:leastPiece])
	for i := leastPiece; i < len(part); i++ {
		h = (h-uint64(part[i-leastPiece])*leaving)*prime + uint64(part[i])
		do(h, part[i-leastPiece+1:i+1])
	}
}

// filter says of most hashes that are not in it that they are not.
type filter [1 << 12]uint64

func (f *filter) place(h uint64) (word, bit uint64) {
	h ^= h >> 29
	h *= 0xbf58476d1ce4e5b9
	return h >> 52, h >> 46 & 63
}

func (f *filter) add(h uint64) {
	word, bit := f.place(h)
	f[word] |= 1 << bit
}

func (f *filter) has(h uint64) bool {
	word, bit := f.place(h)
	return f[word]&(1<<bit) != 0
}

// hideShort hides parts that are shorter than a piece.
func hideShort(text string, parts [][]byte, hidden []bool) {
	at := map[int]map[string][]int{} // by length
	for _, part := range parts {
		n := len(part)
		if n < leastPart || n >= leastPiece {
			continue
		}
		places := at[n]
		if places == nil {
			places = map[string][]int{}
			for i := 0; i+n <= len(text); i++ {
				places[text[i:i+n]] = append(places[text[i:i+n]], i)
			}
			at[n] = places
		}
		for _, i := range places[string(part)] {
			hide(hidden, i, i+n)
		}
		delete(places, string(part))
	}
}

// hideQuoted hides what text quotes of a part, however short it is: what stands between two quotes, of which each may open or close, and
// between the last one and the end.
func hideQuoted(text string, parts [][]byte, hidden []bool) {
	budget := mostSearched
	for _, quote := range "\"'`" {
		for _, q := range quotations(text, byte(quote)) { //nolint:gosec // they are ASCII
			if budget < 0 || stands(text[q.from:q.until], parts, &budget) {
				hide(hidden, q.from, q.until)
			}
		}
	}
}

type span struct{ from, until int }

// quotations are what stands between quotes in text. Those behind a backslash neither open nor close a quotation; they
// are looked at apart, since a text may have no other.
func quotations(text string, quote byte) (found []span) {
	plain, escaped := -1, -1
	for i := 0; i <= len(text); i++ {
		end := i == len(text)
		if !end && text[i] != quote {
			continue
		}
		behind := !end && i > 0 && text[i-1] == '\\'
		if (end || behind) && escaped >= 0 {
			found = append(found, span{escaped, max(escaped, i-1)})
		}
		if (end || !behind) && plain >= 0 && (!end || i-plain >= leastPart) {
			found = append(found, span{plain, i})
		}
		if behind {
			escaped = i + 1
		} else {
			plain = i + 1
		}
	}
	return found
}

// stands reports whether what was quoted is in a part.
func stands(inner string, parts [][]byte, budget *int) bool {
	if strings.Trim(inner, signs) == "" {
		return false
	}
	forms := [][]byte{[]byte(inner)}
	if strings.Contains(inner, `\`) {
		forms = append(forms, []byte(strings.ReplaceAll(inner, `\"`, `"`)))
		if text, err := strconv.Unquote(`"` + inner + `"`); err == nil {
			forms = append(forms, []byte(text))
		}
	}
	for _, part := range parts {
		for _, form := range forms {
			*budget -= len(part) + 64
			if bytes.Contains(part, form) {
				return true
			}
		}
	}
	return false
}
