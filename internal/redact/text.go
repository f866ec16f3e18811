package redact

import "strings"

// Masked stands for what was left out.
const Masked = "***"

// looked is how much more of a text is looked at than is shown, so that most of what is left behind masks is seen.
const looked = 4

// Text returns at most limit bytes of text, without what looks like a secret. It is UTF-8 and has no NUL, as every
// database and every exporter wants it.
func Text(text string, limit int) string {
	cutOff := len(text) > looked*limit
	return Cut(secrets(Cut(text, looked*limit), cutOff), limit)
}

// Cut shortens s to limit bytes, and makes it what everybody takes for text: UTF-8 without NUL.
func Cut(s string, limit int) string {
	s = strings.ToValidUTF8(s[:min(len(s), limit)], "?")
	return strings.ReplaceAll(s, "\x00", "?")
}

// MaxError is the length of the text of an Error in bytes, at most.
const MaxError = 1024

// Error returns an error with the Text of err, which it wraps, as Lines. A nil err is nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return &redacted{Lines(Text(err.Error(), MaxError)), err}
}

type redacted struct {
	text string
	err  error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.err }
