package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/dedupstore"
)

// oddEvents are ids that some column type, collation, driver or index takes for one another, or takes apart.
func oddEvents() []string {
	long := strings.Repeat("0123456789abcde", dedupstore.MaxEventLen/15+1)[:dedupstore.MaxEventLen]
	return []string{
		"a", "A", "a ", " a", "a\t", "a\n", "a\r\n", "aa", "\u0001", "\u007f",
		"1", "01", "1.0", "+1", "1e0", "null", "NULL", "true", "{}", "[]", `""`, "''",
		"$1", "?", ":a", "%s", "%", "_", `\`, `\\`, `\x61`, "a'b", `a"b`, "a`b", "a;--", "a/*",
		"x'); drop table processed_event; --",
		"\u00e4", "a\u0308", "\u00c4", "ae", // the same letter composed and decomposed, its capital, its transcription
		"\u00df", "ss", "SS", "\u1e9e", "i", "I", "\u0130", "\u0131", "\u017f", "s",
		"\uff41", "\u200b", "a\u200b", "\u00a0", "\ufeffa", "\ufffd", "\U0001f642", "\U0001f642\ufe0f",
		"6f9619ff-8b86-d011-b42d-00c04fc964ff", "6F9619FF-8B86-D011-B42D-00C04FC964FF", "6f9619ff8b86d011b42d00c04fc964ff",
		strings.Repeat("x", 63), strings.Repeat("x", 64), strings.Repeat("x", 255), strings.Repeat("x", 254) + "y",
		strings.Repeat("x", 256),
		long, long[:len(long)-1], long[:len(long)-1] + "!",
	}
}

func (s *suite[Tx]) oddKeys() {
	var keys []dedupstore.Key
	for _, event := range oddEvents() {
		keys = append(keys, dedupstore.Key{Consumer: "c", Event: event})
	}
	for _, consumer := range []string{"C", "c ", "\u00e4", "a\u0308", "c\na",
		oddEvents()[len(oddEvents())-1][:dedupstore.MaxConsumerLen]} {
		keys = append(keys, dedupstore.Key{Consumer: consumer, Event: "a"})
	}
	keys = append(keys, dedupstore.Key{ // the largest of all
		Consumer: strings.Repeat("z", dedupstore.MaxConsumerLen), Event: strings.Repeat("z", dedupstore.MaxEventLen),
	})
	for i, k := range keys {
		ran, err := s.once(s.Store, k, s.writes(fmt.Sprint(i)))
		if !ran || err != nil {
			s.t.Fatalf("Once() = %v, %v for the key %.60q, want true: it was taken for another one, or refused", ran, err,
				k.String())
		}
	}
	for i, k := range keys {
		s.wantEffects(fmt.Sprint(i), 1)
		s.wantSkipped(k)
	}
}

func (s *suite[Tx]) invalidKeys() {
	text := strings.Repeat("secret", 3)
	for name, k := range map[string]dedupstore.Key{
		"empty event":        {Consumer: "c"},
		"empty consumer":     {Event: text},
		"NUL in event":       {Consumer: "c", Event: text + "\x00"},
		"NUL in consumer":    {Consumer: "c\x00", Event: text},
		"event not UTF-8":    {Consumer: "c", Event: text + "\xff"},
		"consumer not UTF-8": {Consumer: "\xc3", Event: text},
		"surrogate":          {Consumer: "c", Event: text + "\xed\xa0\x80"},
		"event too long":     {Consumer: "c", Event: strings.Repeat("x", dedupstore.MaxEventLen+1)},
		"event of 1 MB":      {Consumer: "c", Event: strings.Repeat("x", 1<<20)},
		"consumer too long":  {Consumer: strings.Repeat("x", dedupstore.MaxConsumerLen+1), Event: text},
	} {
		ran, err := s.once(s.Store, k, func(ctx context.Context, tx Tx) error {
			s.t.Errorf("%s: the function runs", name)
			return s.Write(ctx, tx, name)
		})
		if ran || !errors.Is(err, dedupstore.ErrInvalidKey) {
			s.t.Errorf("%s: Once() = %v, %v, want false and an error that wraps ErrInvalidKey", name, ran, err)
		}
		s.wantClass(err, dedupstore.Permanent)
		if err != nil && (strings.Contains(err.Error(), "secret") || len(err.Error()) > 1000) {
			s.t.Errorf("%s: the error repeats the key, or is too long: %.200s", name, err.Error())
		}
		s.wantEffects(name, 0)
	}
}
