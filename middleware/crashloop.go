package middleware

import "errors"

// ErrCrashLoop is wrapped by the permanent error for a message whose handling has ended the process too often.
var ErrCrashLoop = errors.New("the process ended each time while this message was handled")
