package console

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/einmal-go/einmal/deadletter"
)

// searchFields are the arguments that make a deadletter.Search, but for ids.
var searchFields = []string{"consumer", "kind", "error", "topic", "event", "key", "text", "since", "until"}

// noErrorType is the argument for dead letters without a type of error: an empty one does not restrict.
const noErrorType = "(none)"

// errorArg is an error type as an argument.
func errorArg(errorType string) string {
	if errorType == "" {
		return noErrorType
	}
	return errorType
}

// searchOf reads a search from arguments. The error is a *refusal that says what is wrong with them.
func searchOf(args url.Values, now time.Time) (s deadletter.Search, err error) {
	s.Consumer, s.Topic, s.Kind, s.ErrorType = args.Get("consumer"), args.Get("topic"), deadletter.Kind(args.Get("kind")),
		args.Get("error")
	if s.ErrorType == noErrorType {
		s.ErrorType, s.NoErrorType = "", true
	}
	s.Event, s.Text = args.Get("event"), args.Get("text")
	if s.Kind != "" && !slices.Contains(deadletter.Kinds(), s.Kind) {
		return s, wrongArg("There is no kind %q.", s.Kind)
	}
	if key := args.Get("key"); key != "" {
		if s.Key, err = keyOf(key); err != nil {
			return s, err
		}
	}
	if s.Since, err = momentOf(args.Get("since"), now); err != nil {
		return s, err
	}
	if s.Until, err = momentOf(args.Get("until"), now); err != nil {
		return s, err
	}
	for _, id := range args["id"] {
		if id == "" {
			continue
		}
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil || n < 1 {
			return s, wrongArg("%q is no number of a dead letter.", id)
		}
		s.IDs = append(s.IDs, n)
	}
	return s, nil
}

func wrongArg(format string, args ...any) error {
	return &refusal{http.StatusBadRequest, fmt.Sprintf(format, args...), "Nothing was done."}
}

// keyOf reads a key: a text, or bytes in hexadecimal behind "hex:".
func keyOf(text string) ([]byte, error) {
	digits, isHex := strings.CutPrefix(text, "hex:")
	if !isHex {
		return []byte(text), nil
	}
	key, err := hex.DecodeString(digits)
	if err != nil {
		return nil, wrongArg("A key behind hex: has two hexadecimal digits for each byte.")
	}
	return key, nil
}

// momentOf reads a time: exactly, to the minute in UTC, or how long ago. An empty text is none.
func momentOf(text string, now time.Time) (time.Time, error) {
	if text = strings.TrimSpace(text); text == "" {
		return time.Time{}, nil
	}
	for _, form := range []string{time.RFC3339Nano, "2006-01-02T15:04", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.Parse(form, text); err == nil {
			return t, nil
		}
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	return time.Time{}, wrongArg("%q is no time: write 2026-01-02T15:04:05Z, 2026-01-02 15:04 in UTC, or 36h for 36 hours ago.", text)
}
