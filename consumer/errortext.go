package consumer

import (
	"fmt"

	"github.com/einmal-go/einmal/internal/redact"
)

// maxErrorText is the length of the text of an error in a line of the log, in bytes.
const maxErrorText = redact.MaxError

// ErrorText returns the text of err as it may be shown: at most limit bytes, as Config.ErrorText makes it. By default
// what looks like a secret is masked (a password in a URL or after its name, a token, a cookie), and so is what stands
// in the message itself: its key, its value, its headers' values, whatever 12 bytes in a row the text repeats of one of
// them, and what it quotes of them, as PostgreSQL quotes a value that it refuses. What it cannot know is a shorter
// piece of the message that the text repeats without quotes. Only the first 4 times limit bytes of the text are looked
// at. It is "" for a nil err; m may be nil.
func (m *Message) ErrorText(err error, limit int) string {
	if err == nil {
		return ""
	}
	if m == nil {
		return redact.Text(err.Error(), limit)
	}
	if m.errorText != nil {
		return redact.Cut(m.ownErrorText(err), limit)
	}
	return redact.Message(err.Error(), m.parts(), limit)
}

// ownErrorText asks the user's function, whose panic must not keep the message.
func (m *Message) ownErrorText(err error) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("Config.ErrorText panicked; the error is of type %T", err)
		}
	}()
	return m.errorText(err, m)
}

// parts are what a text may repeat of a message.
func (m *Message) parts() [][]byte {
	parts := [][]byte{m.Key, m.Value}
	for _, h := range m.Headers {
		parts = append(parts, h.Value)
	}
	return parts
}
