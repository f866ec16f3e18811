package consumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// What docs/kafka-rules.md says about the client's configuration, beside what TestValuesThatCorrectnessRestsOn has.
func TestValuesOfTheClient(t *testing.T) {
	t.Parallel()
	eager, cooperative := newSaramaConfig("g", &strategy{}), newSaramaConfig("g", &strategy{kind: Cooperative})
	for rule, kept := range map[string]bool{
		"10, small fetches cost throughput and bound nothing": eager.Consumer.Fetch.Default >= 1<<20 &&
			eager.ChannelBufferSize == sarama.NewConfig().ChannelBufferSize,
		"22, commits once in a while": eager.Consumer.Offsets.AutoCommit.Interval >= time.Second &&
			eager.Consumer.Offsets.AutoCommit.Interval <= 5*time.Second,
		"33, long polls delay a rebalance": eager.Consumer.MaxWaitTime <= 250*time.Millisecond &&
			cooperative.Consumer.MaxWaitTime <= 100*time.Millisecond,
		"39, no longer without heartbeats than a session": rejoinMax*3/2+rebalanceTimeout < sessionTimeout,
		"43, a full response is read":                     int64(eager.Consumer.Fetch.MaxBytes)+int64(eager.Consumer.Fetch.Default) < int64(sarama.MaxResponseSize),
		"44, growth is seen within minutes": eager.Metadata.RefreshFrequency >= time.Minute &&
			eager.Metadata.RefreshFrequency <= 5*time.Minute,
		"45, one partition that cannot be read ends no session": eager.Consumer.Retry.Max == 0,
		"46, the version is pinned, and new enough": eager.Version == sarama.V3_6_0_0 &&
			strings.HasPrefix(eager.ClientID, "einmal-"),
		"kafka-real.md 6, a broker's death is outlived": patience > 11*time.Second && patience < sessionTimeout &&
			readTimeout > 10100*time.Millisecond,
	} {
		if !kept {
			t.Errorf("rule %s: not kept", rule)
		}
	}
}

// sarama's variables belong to the whole process: einmal reads them.
func TestGlobalsAreLeftAlone(t *testing.T) {
	t.Parallel()
	logger, response, batch := sarama.Logger, sarama.MaxResponseSize, sarama.MaxDecompressedBatchSize
	h := HandlerFunc(func(context.Context, *Message) error { return nil })
	if _, err := New(Config{Brokers: []string{"localhost:9092"}, Group: "g",
		Topics: map[string]Topic{"t": {Handler: h}}}); err != nil {
		t.Fatal(err)
	}
	if sarama.Logger != logger || sarama.MaxResponseSize != response || sarama.MaxDecompressedBatchSize != batch {
		t.Error("New has changed variables of package sarama")
	}
}

func TestSizesThatContradict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		maxBytes int32
		wrong    bool
	}{{50 << 20, false}, {96 << 20, false}, {96<<20 + 1, true}, {1<<31 - 1, true}} {
		var p problems
		saramaConfig(&p, Config{Group: "g", Sarama: func(c *sarama.Config) { c.Consumer.Fetch.MaxBytes = test.maxBytes }},
			&strategy{})
		if err := errors.Join(p...); (err != nil) != test.wrong || err != nil &&
			!strings.Contains(err.Error(), "sarama.MaxResponseSize") {
			t.Errorf("MaxBytes %d: %v", test.maxBytes, err)
		}
	}
}

// Errors that say the same are logged as one: the port of this end of a connection changes, and each partition has its
// own.
func TestBrokerErrorsThatSayTheSame(t *testing.T) {
	t.Parallel()
	errs, b := newLogged()
	for i := range 200 {
		errs.warn(fmt.Errorf("read tcp 10.0.0.7:%d->10.0.0.1:9092: i/o timeout", 40000+i))
		errs.warn(fmt.Errorf("write tcp [::1]:%d->[::1]:9092: broken pipe", 40000+i))
		errs.warn(&sarama.ConsumerError{Topic: "orders", Partition: int32(i),
			Err: fmt.Errorf("read tcp 10.0.0.7:%d->10.0.0.2:9092: EOF", 40000+i)})
	}
	errs.warn(errors.New("read tcp 10.0.0.7:40000->10.0.0.1:9093: i/o timeout"))
	errs.warn(&sarama.ConsumerError{Topic: "payments", Err: errors.New("read tcp 10.0.0.7:40000->10.0.0.2:9092: EOF")})
	lines := logged(t, b)
	if len(lines) != 5 {
		t.Errorf("%d lines, want one for each of 5: %v", len(lines), lines)
	}
	if !strings.Contains(lines[0].Error, "10.0.0.7:40000->10.0.0.1:9092") ||
		!strings.Contains(lines[2].Error, "orders/0") {
		t.Errorf("the text itself is not whole: %v", lines)
	}
}

// Who makes the group rebalance pauses; the others follow soon.
func TestWhoPausesBetweenSessions(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		end   error
		short int
		want  time.Duration
	}{
		{nil, 1, 0},
		{nil, 8, 5 * time.Second},
		{sarama.ErrSessionConsumeClaimExited, 8, 5 * time.Second},
		{sarama.ErrUnknownMemberId, 8, 5 * time.Second},
		{sarama.ErrRebalanceInProgress, 1, 0},
		{sarama.ErrRebalanceInProgress, 2, 100 * time.Millisecond},
		{sarama.ErrRebalanceInProgress, 8, 200 * time.Millisecond},
	} {
		m := &membership{sessionEnd: test.end}
		if got := m.rejoinDelay(test.short); got != test.want {
			t.Errorf("%v, %d short sessions: %v, want %v", test.end, test.short, got, test.want)
		}
	}
}

// A new assignment tells a claim that it goes before its channel is closed, in cooperative mode.
func TestAssignmentRevokesEarly(t *testing.T) {
	t.Parallel()
	st := &strategy{kind: Cooperative}
	kept, _ := testClaim(PartitionOrder, nil)
	goes, _ := testClaim(PartitionOrder, nil)
	goes.partition = 1
	r := kept.run
	r.claims = map[*claim]struct{}{kept: {}, goes: {}}
	m := &membership{running: r}
	st.onAssignment(m.assigned)
	told, ok := st.list()[0].(sarama.OnAssignmentBalanceStrategy)
	if !ok {
		t.Fatal("the cooperative strategy is not told of assignments")
	}
	assignment := map[string][]int32{"t": {0}, "u": {1}}
	told.OnAssignment(&sarama.ConsumerGroupMemberAssignment{Topics: maps.Clone(assignment)}, 1)
	if kept.stopped || !kept.revoked.IsZero() {
		t.Error("the partition that stays is stopped")
	}
	if !goes.stopped || goes.revoked.IsZero() {
		t.Fatal("the partition that goes is not stopped")
	}
	began := time.Now()
	if goes.drained(time.Hour); time.Since(began) > time.Second {
		t.Error("nothing runs, and it drains")
	}
	goes.mu.Lock()
	goes.revoked = goes.revoked.Add(-time.Hour)
	goes.idle = make(chan struct{}) // as if something ran
	goes.mu.Unlock()
	if began = time.Now(); goes.drained(time.Hour) || time.Since(began) > time.Second {
		t.Error("the clock of the drain does not run from the revocation on")
	}
}
