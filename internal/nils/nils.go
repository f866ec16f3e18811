// Package nils tells whether there is nothing in an interface.
package nils

import "reflect"

// Is reports whether v is nil, or a nil pointer or func in an interface: what a variable that was declared and never
// set becomes when it is passed on. Methods of it would panic at the first message.
func Is(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Func:
		return r.IsNil()
	default:
		return false
	}
}
