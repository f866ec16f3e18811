package deadletter

import "github.com/einmal-go/einmal/consumer"

// MaxText is the length of Record.Error and RedriveError in bytes, at most.
const MaxText = 2048

// Text returns the text of err as it may stand in a Record and in lists of them: consumer.Message.ErrorText, at most
// MaxText bytes. It is "" if err is nil.
func Text(err error, msg *consumer.Message) string { return msg.ErrorText(err, MaxText) }
