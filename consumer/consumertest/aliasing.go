package consumertest

import (
	"bytes"
	"slices"

	"github.com/einmal-go/einmal/consumer"
)

// content is a copy of what a message holds of its fetched batch.
type content struct {
	key, value []byte
	headers    []consumer.Header
}

func copyOf(msg *consumer.Message) content {
	c := content{key: bytes.Clone(msg.Key), value: bytes.Clone(msg.Value), headers: slices.Clone(msg.Headers)}
	for i := range c.headers {
		c.headers[i].Value = bytes.Clone(c.headers[i].Value)
	}
	return c
}

// difference names what has been written to since the copy was made, or is empty.
func (c content) difference(msg *consumer.Message) string {
	switch {
	case !bytes.Equal(c.key, msg.Key):
		return "bytes of the key"
	case !bytes.Equal(c.value, msg.Value):
		return "bytes of the value"
	case !slices.EqualFunc(c.headers, msg.Headers, func(a, b consumer.Header) bool {
		return a.Key == b.Key && bytes.Equal(a.Value, b.Value)
	}):
		return "headers"
	default:
		return ""
	}
}
