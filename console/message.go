package console

import (
	"context"
	"fmt"
	"html/template"
	"net/http"
	"strconv"

	"github.com/einmal-go/einmal/consumer"
)

// messageView is one message.
type messageView struct {
	Topic     string
	Partition string
	Offset    string

	Kafka   bool // messages can be read
	Asked   bool // one is named
	Problem string
	Message *consumer.Message
	Key     content
	Headers []headerRow
	More    int // headers that are not shown
	TraceID string
	Trace   template.URL // leads to it

	Value     *content // if it is shown
	Shows     bool     // the request may see values
	ValueLink string
	Earlier   string
	Later     string
	Failing   []partitionRow // what the processes know of it
}

type headerRow struct {
	Name  string
	Value content
}

// maxHeaders is how many headers of a message are shown.
const maxHeaders = 100

// message is the page of one message, which is read outside of any group.
func (c *Console) message(r *http.Request) (title string, body any, err error) {
	query := r.URL.Query()
	v := &messageView{
		Topic: query.Get("topic"), Partition: query.Get("partition"), Offset: query.Get("offset"),
		Kafka: c.groups.kafka != nil, Shows: c.showsValues(r),
	}
	if v.Topic == "" && v.Partition == "" && v.Offset == "" {
		return "Message", v, nil
	}
	v.Asked = true
	partition, offset, ok := v.place()
	if !ok {
		v.Problem = "Name a topic, and a partition and an offset as numbers from 0."
		return "Message", v, nil
	}
	title = fmt.Sprintf("Message %s[%d]@%d", v.Topic, partition, offset)
	v.known(c.look(r.Context()), partition, offset)
	if !v.Kafka {
		return title, v, nil
	}
	msg, err := c.read(r.Context(), v.Topic, partition, offset)
	if err != nil {
		v.Problem = shownError(err)
		return title, v, nil
	}
	v.show(msg, query.Get("value") != "")
	v.Trace = c.traceLink(v.TraceID)
	return title, v, nil
}

// place reads what was asked for.
func (v *messageView) place() (partition int32, offset int64, ok bool) {
	p, perr := strconv.ParseInt(v.Partition, 10, 32)
	offset, oerr := strconv.ParseInt(v.Offset, 10, 64)
	return int32(p), offset, v.Topic != "" && perr == nil && oerr == nil && p >= 0 && offset >= 0
}

// read reads a message, one at a time: a reader holds a batch of the topic in memory.
func (c *Console) read(ctx context.Context, topic string, partition int32, offset int64) (msg *consumer.Message,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	select {
	case c.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("another message is being read: try again in a moment")
	}
	type read struct {
		msg *consumer.Message
		err error
	}
	done := make(chan read, 1)
	go func() { // a client that does not listen to ctx
		defer func() { <-c.reading }()
		msg, err := c.cfg.Kafka.Message(ctx, topic, partition, offset)
		done <- read{msg, err}
	}()
	select {
	case r := <-done:
		if r.err == nil && r.msg == nil {
			return nil, fmt.Errorf("there is no such message")
		}
		return r.msg, r.err
	case <-ctx.Done():
		return nil, fmt.Errorf("Kafka has not answered within %v", c.cfg.Timeout)
	}
}

// known adds what processes tell of the message.
func (v *messageView) known(s *state, partition int32, offset int64) {
	for _, g := range s.Groups {
		for _, p := range g.Partitions {
			if p.Topic != v.Topic || p.Partition != partition || p.partitionFacts == nil {
				continue
			}
			if p.Failing != nil && p.Failing.Offset == offset || p.Oldest != nil && p.Oldest.Offset == offset {
				v.Failing = append(v.Failing, partitionRow{partitionState: p, Known: true})
			}
		}
	}
}

func (v *messageView) show(msg *consumer.Message, value bool) {
	v.Message, v.Key = msg, contentOf(msg.Key)
	for i, h := range msg.Headers {
		if i == maxHeaders {
			v.More = len(msg.Headers) - maxHeaders
			break
		}
		v.Headers = append(v.Headers, headerRow{h.Key, contentOf(h.Value)})
	}
	v.TraceID = traceID(msg)
	at := func(offset int64) string {
		return address("message", "topic", msg.Topic, "partition", strconv.Itoa(int(msg.Partition)), "offset",
			strconv.FormatInt(offset, 10))
	}
	v.ValueLink, v.Later = at(msg.Offset)+"&value=1", at(msg.Offset+1)
	if msg.Offset > 0 {
		v.Earlier = at(msg.Offset - 1)
	}
	if v.Shows && value {
		shown := contentOf(msg.Value)
		v.Value = &shown
	}
}
