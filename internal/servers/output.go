package servers

import (
	"bytes"
	"sync"
)

// Output keeps the last 64 KiB of what is written to it. It is safe for concurrent use, and its zero value is ready.
type Output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const outputLimit = 64 << 10

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.buf.Write(p)
	if over := o.buf.Len() - outputLimit; over > 0 {
		o.buf.Next(over)
	}
	return len(p), nil
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
