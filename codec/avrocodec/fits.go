package avrocodec

import (
	"errors"
	"reflect"
	"strings"

	"github.com/hamba/avro/v2"
)

// fits reports why E cannot hold an event of the schema: some value of the schema is decoded into it for each branch of
// its unions. What the event's own methods say of that value does not matter.
func fits[E any](api avro.API, schema avro.Schema) error {
	typ := reflect.TypeFor[E]()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	for branch := range branches(schema, map[string]bool{}) {
		s := &sample{branch: branch, within: map[string]bool{}}
		s.write(schema)
		if err := api.Unmarshal(schema, s.value, reflect.New(typ).Interface()); err != nil && isMismatch(err) {
			field, reason := explain(err)
			if field != "" {
				reason = "field " + field + ": " + reason
			}
			return errors.New(reason)
		}
	}
	return nil
}

// isMismatch tells the error of a type that cannot hold what the schema says from one about a value.
func isMismatch(err error) bool {
	return strings.Contains(err.Error(), "is unsupported for Avro") ||
		strings.Contains(err.Error(), "unable to resolve type")
}

// branches is how many branches the schema's largest union has, and 1 if there is none.
func branches(schema avro.Schema, seen map[string]bool) int {
	n := 1
	for _, s := range inside(schema, seen) {
		n = max(n, branches(s, seen))
	}
	if u, ok := schema.(*avro.UnionSchema); ok {
		n = max(n, len(u.Types()))
	}
	return n
}

// inside are the schemas that a schema is made of. A record is opened once.
func inside(schema avro.Schema, seen map[string]bool) (list []avro.Schema) {
	switch s := schema.(type) {
	case *avro.RecordSchema:
		if seen[s.FullName()] {
			return nil
		}
		seen[s.FullName()] = true
		for _, f := range s.Fields() {
			list = append(list, f.Type())
		}
	case *avro.ArraySchema:
		list = []avro.Schema{s.Items()}
	case *avro.MapSchema:
		list = []avro.Schema{s.Values()}
	case *avro.UnionSchema:
		list = s.Types()
	case *avro.RefSchema:
		list = []avro.Schema{s.Schema()}
	}
	return list
}

// sample is a value of a schema in Avro's binary encoding: zeros, arrays and maps of one element, and one branch of
// each union.
type sample struct {
	value  []byte
	branch int
	within map[string]bool // records that are being written, since they may be made of themselves
}

func (s *sample) write(schema avro.Schema) {
	switch t := schema.(type) {
	case *avro.RecordSchema:
		s.within[t.FullName()] = true
		for _, f := range t.Fields() {
			s.write(f.Type())
		}
		delete(s.within, t.FullName())
	case *avro.ArraySchema:
		s.one(t.Items(), nil)
	case *avro.MapSchema:
		s.one(t.Values(), []byte{2, 'k'}) // a key of one byte
	case *avro.UnionSchema:
		s.union(t)
	case *avro.RefSchema:
		s.write(t.Schema())
	case *avro.FixedSchema:
		s.value = append(s.value, make([]byte, t.Size())...)
	case *avro.PrimitiveSchema:
		s.value = append(s.value, make([]byte, map[avro.Type]int{avro.Float: 4, avro.Double: 8, avro.Null: 0}[t.Type()])...)
		if t.Type() != avro.Float && t.Type() != avro.Double {
			s.value = append(s.value, 0) // false, 0, or a length of 0
		}
	case *avro.NullSchema:
	default: // an enum's first symbol
		s.value = append(s.value, 0)
	}
}

// one writes one element, or none if it would never end.
func (s *sample) one(element avro.Schema, key []byte) {
	if !s.endless(element) {
		s.value = append(append(s.value, 2), key...)
		s.write(element)
	}
	s.value = append(s.value, 0)
}

// union writes a branch: the chosen one, or the next that ends.
func (s *sample) union(u *avro.UnionSchema) {
	for i := range u.Types() {
		branch := (s.branch + i) % len(u.Types())
		if t := u.Types()[branch]; !s.endless(t) {
			s.value = append(s.value, byte(2*branch)) //nolint:gosec // a union of over 63 branches is not looked at further
			s.write(t)
			return
		}
	}
}

// endless reports whether the schema is a record that is being written.
func (s *sample) endless(schema avro.Schema) bool {
	if r, ok := schema.(*avro.RefSchema); ok {
		schema = r.Schema()
	}
	named, ok := schema.(avro.NamedSchema)
	return ok && s.within[named.FullName()]
}
