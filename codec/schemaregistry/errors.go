package schemaregistry

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/twmb/franz-go/pkg/sr"
)

// answerError is an answer of the registry that is not the one that was asked for. Its text has the numbers alone: a
// proxy's page, or a message that repeats what was sent, is not for a log.
type answerError struct {
	err  error
	code int // of HTTP
	own  int // the registry's error_code; 0 if there is none
}

func (e *answerError) Error() string {
	text := fmt.Sprintf("HTTP status %d %s", e.code, http.StatusText(e.code))
	if e.own != 0 {
		text += fmt.Sprintf(", error_code %d", e.own)
	}
	if known := sr.ErrorForCode(e.own); known != nil && known != sr.ErrUnknown {
		text += ": " + known.Description
	}
	return text
}

func (e *answerError) Unwrap() error { return e.err }

// clean returns err without what must not be shown: credentials in an address, and the text of an answer.
func clean(err error) error {
	if err == nil {
		return nil
	}
	if answer, ok := errors.AsType[*sr.ResponseError](err); ok {
		return &answerError{err, answer.StatusCode, answer.ErrorCode}
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // whose text has the address
		return fmt.Errorf("no answer: %w", e.Err)
	}
	return err
}

// status is that of HTTP, or 0 if there was no answer.
func status(err error) int {
	if e, ok := errors.AsType[*answerError](err); ok {
		return e.code
	}
	return 0
}

// isUnknown reports whether the registry says that it does not have what was asked for. A plain 404 is that of another
// server.
func isUnknown(err error) bool {
	answer, ok := errors.AsType[*sr.ResponseError](err)
	if !ok || answer.StatusCode != http.StatusNotFound {
		return false
	}
	switch answer.ErrorCode {
	case sr.ErrSubjectNotFound.Code, sr.ErrVersionNotFound.Code, sr.ErrSchemaNotFound.Code, sr.ErrSubjectSoftDeleted.Code:
		return true
	}
	return false
}
