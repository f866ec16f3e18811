package relay_test

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

// slowly has the broker wait before it looks at the first produce request.
func slowly(b *serverstest.Broker, d time.Duration) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.SleepControl(func() { time.Sleep(d) })
		return nil, nil, false
	}
}

// refusing answers produce requests for which decide says so with an error for all partitions in them, as long as it
// does.
func refusing(b *serverstest.Broker, decide func(*kmsg.ProduceRequest) (code int16,
	refuse bool)) func(kmsg.Request) (kmsg.Response, error, bool) {
	return func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.Fake.KeepControl()
		req := kreq.(*kmsg.ProduceRequest)
		code, refuse := decide(req)
		if !refuse {
			return nil, nil, false
		}
		res := req.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			res.Topics = append(res.Topics, rt)
		}
		return res, nil, true
	}
}
