package protocodec

import (
	"context"
	"fmt"

	"github.com/bufbuild/protocompile"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/einmal-go/einmal/codec/schemaregistry"
)

// file is the name of the schema itself: a registry has none for it.
const file = "schema.proto"

// compile reads a schema with what it imports.
func compile(text sr.Schema, references []schemaregistry.Reference) (protoreflect.FileDescriptor, error) {
	if text.Type != sr.TypeProtobuf {
		return nil, fmt.Errorf("it is a schema of %s, not of Protobuf", text.Type)
	}
	texts := map[string]string{file: text.Schema}
	for _, r := range references {
		texts[r.Name] = r.Schema.Schema
	}
	c := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{Accessor: protocompile.SourceAccessorFromMap(texts)}),
		MaxParallelism: 1,
	}
	files, err := c.Compile(context.Background(), file)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// find returns the path to a message of that name, or nil.
func find(messages protoreflect.MessageDescriptors, name protoreflect.FullName) []int {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.FullName() == name {
			return []int{i}
		}
		if inner := find(m.Messages(), name); inner != nil {
			return append([]int{i}, inner...)
		}
	}
	return nil
}
