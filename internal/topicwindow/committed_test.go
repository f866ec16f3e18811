package topicwindow

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// What a group has committed is told for each partition; that of one is not told is an error, and no partition without
// a committed offset.
func TestCommittedOffsets(t *testing.T) {
	t.Parallel()
	b := serverstest.InProcess(t, kfake.NumBrokers(1))
	topic, group := b.Topic(t, 2), serverstest.Group(t)
	c, err := Dial(t.Context(), b.Addrs, Security{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	for _, want := range []map[int32]int64{{}, {0: 7}} {
		if got, err := c.Committed(group, topic, []int32{0, 1}); err != nil || !maps.Equal(got, want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
		b.Commit(t, group, topic, 0, 7)
	}
	for name, answer := range map[string]struct {
		code int16
		told int // of the two partitions
		is   error
	}{
		"an offset that cannot be told": {kerr.UnstableOffsetCommit.Code, 2, sarama.ErrUnstableOffsetCommit},
		"a partition that is missing":   {0, 1, sarama.ErrIncompleteResponse},
	} {
		b.Fake.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			return offsetsOf(req, topic, answer.told, answer.code), nil, true
		})
		if got, err := c.Committed(group, topic, []int32{0, 1}); !errors.Is(err, answer.is) ||
			!strings.Contains(err.Error(), topic+"[1]") {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// offsetsOf answers for the first partitions of a topic, with the code for the second one.
func offsetsOf(req kmsg.Request, topic string, partitions int, code int16) kmsg.Response {
	res := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	asked := req.(*kmsg.OffsetFetchRequest)
	var old []kmsg.OffsetFetchResponseTopicPartition
	var told []kmsg.OffsetFetchResponseGroupTopicPartition
	for i := range int32(partitions) {
		o, p := kmsg.NewOffsetFetchResponseTopicPartition(), kmsg.NewOffsetFetchResponseGroupTopicPartition()
		o.Partition, p.Partition = i, i
		if i == 1 {
			o.ErrorCode, p.ErrorCode = code, code
		}
		old, told = append(old, o), append(told, p)
	}
	if len(asked.Groups) == 0 {
		res.Topics = []kmsg.OffsetFetchResponseTopic{{Topic: topic, Partitions: old}}
		return res
	}
	res.Groups = []kmsg.OffsetFetchResponseGroup{{Group: asked.Groups[0].Group,
		Topics: []kmsg.OffsetFetchResponseGroupTopic{{Topic: topic, Partitions: told}}}}
	return res
}
