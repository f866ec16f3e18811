package consumer

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"
)

// eventField is a field of a struct as encoding/json sees it.
type eventField struct {
	name     string // in JSON
	typ      reflect.Type
	required bool
	mistake  string // what is wrong with its tag
}

var eventFields sync.Map // of types of structs: []eventField

// fieldsOf returns the fields of a struct that JSON can set, those of embedded structs among them.
func fieldsOf(typ reflect.Type) []eventField {
	if known, ok := eventFields.Load(typ); ok {
		fields, _ := known.([]eventField)
		return fields
	}
	fields := collectFields(typ, map[reflect.Type]bool{})
	eventFields.Store(typ, fields)
	return fields
}

func collectFields(typ reflect.Type, seen map[reflect.Type]bool) (fields []eventField) {
	if seen[typ] {
		return nil
	}
	seen[typ] = true
	for f := range typ.Fields() {
		tag, required := f.Tag.Lookup("einmal")
		json := f.Tag.Get("json")
		name, _, _ := strings.Cut(json, ",")
		if inner := embedded(f.Type); f.Anonymous && name == "" && inner.Kind() == reflect.Struct && !required {
			fields = append(fields, collectFields(inner, seen)...)
			continue
		}
		if name == "" {
			name = f.Name
		}
		if unseen := json == "-" || !f.IsExported(); required {
			fields = append(fields, eventField{name: name, typ: f.Type, required: true, mistake: mistakeOf(tag, unseen)})
		} else if !unseen {
			fields = append(fields, eventField{name: name, typ: f.Type})
		}
	}
	return fields
}

// mistakeOf says what is wrong with a tag of einmal's.
func mistakeOf(tag string, unseen bool) string {
	switch {
	case tag != "required":
		return fmt.Sprintf(`has the tag einmal:%q: the only one is einmal:"required"`, tag)
	case unseen:
		return `has the tag einmal:"required", but encoding/json never sets it: export the field, or remove the tag`
	default:
		return ""
	}
}

func embedded(typ reflect.Type) reflect.Type {
	if typ.Kind() == reflect.Pointer {
		return typ.Elem()
	}
	return typ
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// opaque reports whether a type decodes itself, so that its fields say nothing about the JSON.
func opaque(typ reflect.Type) bool {
	ptr := reflect.PointerTo(typ)
	return ptr.Implements(jsonUnmarshaler) || ptr.Implements(textUnmarshaler)
}

// demands is what the tags in a type, and in those that it is made of, come to.
type demands struct {
	required bool  // there is one
	mistake  error // in one of them
}

var typeDemands sync.Map // of types: demands

func demandsOf(typ reflect.Type) demands {
	if known, ok := typeDemands.Load(typ); ok {
		d, _ := known.(demands)
		return d
	}
	var d demands
	d.add(typ, map[reflect.Type]bool{})
	typeDemands.Store(typ, d)
	return d
}

func (d *demands) add(typ reflect.Type, seen map[reflect.Type]bool) {
	if seen[typ] || opaque(typ) {
		return
	}
	seen[typ] = true
	switch typ.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		d.add(typ.Elem(), seen)
	case reflect.Struct:
		for _, f := range fieldsOf(typ) {
			d.required = d.required || f.required
			if f.mistake != "" && d.mistake == nil {
				d.mistake = fmt.Errorf("einmal: field %s of %v %s", f.name, typ, f.mistake)
			}
			d.add(f.typ, seen)
		}
	}
}

// tagDelay is the pause of messages whose type has a mistake in its tags. Nothing is wrong with the messages.
const tagDelay = 10 * time.Second

// tagMistake is the error for every message of a type that has a mistake in its tags: they wait until it is corrected.
func tagMistake(typ reflect.Type) error {
	if mistake := demandsOf(typ).mistake; mistake != nil {
		return RetryAfter(tagDelay, mistake)
	}
	return nil
}

// missing returns the path of the first field that is required and is not in a value, which was decoded into typ
// without an error.
func missing(typ reflect.Type, value []byte) string {
	if !demandsOf(typ).required {
		return ""
	}
	s := search{dec: json.NewDecoder(bytes.NewReader(value))}
	s.dec.UseNumber()
	s.value(typ)
	return s.missing
}

// search reads a value once, from its beginning to the first field that is missing.
type search struct {
	dec     *json.Decoder
	path    []string
	missing string
}

// value reads the next value, and reports whether it is something else than null.
func (s *search) value(typ reflect.Type) bool {
	if !demandsOf(typ).required {
		return s.skip()
	}
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	begin, err := s.dec.Token()
	if err != nil || begin == nil {
		return false
	}
	switch {
	case begin == json.Delim('{') && typ.Kind() == reflect.Struct:
		s.object(fieldsOf(typ))
	case begin == json.Delim('{'):
		for s.more() {
			_, _ = s.dec.Token()
			s.inside("*", typ.Elem()) // a map
		}
	case begin == json.Delim('['):
		for s.more() {
			s.value(typ.Elem())
		}
	default:
		return true
	}
	if s.missing == "" {
		_, _ = s.dec.Token() // the end
	}
	return true
}

// skip reads the next value, as value does, and looks for nothing in it.
func (s *search) skip() bool {
	var skipped json.RawMessage
	return s.dec.Decode(&skipped) == nil && !isNull(skipped)
}

func (s *search) more() bool { return s.missing == "" && s.dec.More() }

func (s *search) inside(name string, typ reflect.Type) bool {
	s.path = append(s.path, name)
	there := s.value(typ)
	s.path = s.path[:len(s.path)-1]
	return there
}

// object reads the fields of an object to its end.
func (s *search) object(fields []eventField) {
	found := map[string]bool{}
	for s.more() {
		token, _ := s.dec.Token()
		name, _ := token.(string)
		if f := fieldNamed(fields, name); f != nil {
			found[f.name] = s.inside(f.name, f.typ)
		} else {
			s.skip()
		}
	}
	if s.missing != "" {
		return
	}
	for _, f := range fields {
		if f.required && !found[f.name] {
			s.missing = cutPath(strings.Join(append(s.path, f.name), "."))
			return
		}
	}
}

// fieldNamed returns the field that encoding/json takes for a name: that with the name itself, or one that differs by
// case.
func fieldNamed(fields []eventField, name string) *eventField {
	var folded *eventField
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
		if folded == nil && strings.EqualFold(fields[i].name, name) {
			folded = &fields[i]
		}
	}
	return folded
}
