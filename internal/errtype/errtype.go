// Package errtype names errors without their texts, for error.type and its like: log, spans, metrics and Status ask the
// one function, so that what failed has one name wherever somebody meets it.
package errtype

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/einmal-go/einmal/internal/sqlstate"
)

// Panic is the name of a panic, which goes before all others.
const Panic = "panic"

// maxName bounds a name, in bytes.
const maxName = 128

// Of names err: one of few words, free of anything that stood in a message. It is "" for nil; "panic"; the SQLSTATE of
// a database's error; what the method ErrorType of err, or of an error inside it, says, the outermost first; "timeout"
// or "canceled" of a context; the class that a store gave it; or else the Go type of the error inside all wrappers.
func Of(err error) string {
	if err == nil {
		return ""
	}
	own := ownNames(err)
	if slices.Contains(own, Panic) {
		return Panic
	}
	if code := sqlstate.Of(err); len(code) == 5 {
		return code
	}
	switch class := Class(err); {
	case len(own) > 0:
		return cut(own[0])
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case class != "":
		return class
	}
	return cut(typeOf(cause(err)))
}

// Class returns the class that a store gave err (dedupstore.WithClass), or "".
func Class(err error) string {
	if e, ok := errors.AsType[interface {
		error
		ErrorClass() string
	}](err); ok {
		return e.ErrorClass()
	}
	return ""
}

// New returns an error with a name of its own.
func New(name, text string) error { return &named{name, text} }

type named struct{ name, text string }

func (e *named) Error() string     { return e.text }
func (e *named) ErrorType() string { return e.name }

// ownNames returns what the methods ErrorType in the tree of err say, the outermost first.
func ownNames(err error) (names []string) {
	for err != nil {
		if e, ok := err.(interface{ ErrorType() string }); ok {
			if name := e.ErrorType(); name != "" {
				names = append(names, name)
			}
		}
		if many, ok := err.(interface{ Unwrap() []error }); ok {
			for _, inner := range many.Unwrap() {
				names = append(names, ownNames(inner)...)
			}
			return names
		}
		err = errors.Unwrap(err)
	}
	return names
}

// cause unwraps err as long as its type says nothing: types whose name is not exported, such as those of fmt.Errorf and
// errors.Join.
func cause(err error) error {
	for {
		inner := unwrap(err)
		if inner == nil || telling(err) {
			return err
		}
		err = inner
	}
}

func telling(err error) bool {
	t := reflect.TypeOf(err)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	first, _ := utf8.DecodeRuneInString(t.Name())
	return unicode.IsUpper(first)
}

// unwrap returns what err wraps, the first of several.
func unwrap(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, inner := range many.Unwrap() {
			if inner != nil {
				return inner
			}
		}
		return nil
	}
	return errors.Unwrap(err)
}

// typeOf is the rule of OpenTelemetry's conventions for an error that has no name.
func typeOf(err error) string {
	t := reflect.TypeOf(err)
	if t.PkgPath() == "" && t.Name() == "" {
		return t.String()
	}
	return t.PkgPath() + "." + t.Name()
}

// cut makes a name short and UTF-8: exporters refuse a whole batch for one bad string.
func cut(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxName)], "?") }
