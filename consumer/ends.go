package consumer

import (
	"context"
	"log/slog"
	"time"

	"github.com/IBM/sarama"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

// partitionOffsets are offsets by topic and partition.
type partitionOffsets map[string]map[int32]int64

func (p partitionOffsets) set(topic string, partition int32, offset int64) {
	if p[topic] == nil {
		p[topic] = map[int32]int64{}
	}
	p[topic][partition] = offset
}

// listOffsets asks for the newest offset of each partition, in one request for each leader. A partition that no leader
// tells about is absent. The isolation decides what that is: the last stable one, behind which transactions are open,
// or the high watermark.
func listOffsets(client sarama.Client, partitions map[string][]int32,
	isolation sarama.IsolationLevel) partitionOffsets {
	requests := map[*sarama.Broker]*sarama.OffsetRequest{}
	for topic, ps := range partitions {
		for _, p := range ps {
			leader, err := client.Leader(topic, p)
			if err != nil {
				continue
			}
			if requests[leader] == nil {
				requests[leader] = sarama.NewOffsetRequest(client.Config().Version)
				requests[leader].IsolationLevel = isolation
			}
			requests[leader].AddBlock(topic, p, sarama.OffsetNewest, 1)
		}
	}
	found := partitionOffsets{}
	for leader, req := range requests {
		res, err := leader.GetAvailableOffsets(req)
		if err != nil {
			_ = leader.Close() // the next Leader opens it again
			continue
		}
		for topic, blocks := range res.Blocks {
			for p, block := range blocks {
				if block.Err == sarama.ErrNoError && len(block.Offsets) == 1 {
					found.set(topic, p, block.Offsets[0])
				}
			}
		}
	}
	return found
}

// stableEnd returns the offset behind all messages of a partition that can be read now: with ReadCommitted what belongs
// to an open transaction is still to come.
func (g *groupClient) stableEnd(topic string, partition int32) (int64, error) {
	if g.Config().Consumer.IsolationLevel != sarama.ReadCommitted {
		return g.GetOffset(topic, partition, sarama.OffsetNewest)
	}
	ask := func() (int64, bool) {
		offset, ok := listOffsets(g, map[string][]int32{topic: {partition}}, sarama.ReadCommitted)[topic][partition]
		return offset, ok
	}
	if offset, ok := ask(); ok {
		return offset, nil
	}
	if err := g.RefreshMetadata(topic); err != nil {
		return 0, err
	}
	if offset, ok := ask(); ok {
		return offset, nil
	}
	return 0, sarama.ErrOffsetNotAvailable
}

const (
	// endsPoll is how often the end is looked at of partitions that have nothing to do.
	endsPoll = 3 * time.Second
	// endsTimeout bounds the look at one of them.
	endsTimeout = 2 * time.Second
	// transactionTold is how long a transaction may hold a partition back before the log tells: the time-out that
	// producers give theirs by default (transaction.timeout.ms).
	transactionTold = time.Minute
)

// watchEnds looks behind the last message of each partition that has nothing to do, until ctx is done. sarama reads
// over markers of transactions without telling: a position that stays before them would be a lag that never ends, and a
// partition that waits for the end of a transaction would look like one that has no messages.
func (s *session) watchEnds(ctx context.Context) {
	for pause(ctx, jitter(endsPoll)) {
		idle, partitions := s.idleClaims()
		s.learnEnds()
		if len(idle) == 0 {
			continue
		}
		stable := listOffsets(s.client, partitions, sarama.ReadCommitted)
		newest := listOffsets(s.client, partitions, sarama.ReadUncommitted)
		readable := newest
		if s.sarama.Consumer.IsolationLevel == sarama.ReadCommitted {
			readable = stable
		}
		for _, cl := range idle {
			end, ok := readable[cl.topic.name][cl.partition]
			if !ok || ctx.Err() != nil {
				continue
			}
			cl.passMarkers(ctx, s.client, end)
			cl.heldBack(end, newest[cl.topic.name][cl.partition])
		}
	}
}

// learnEnds asks for the ends of the partitions of which fetches do not tell: those that are paused, and those of which
// nothing was fetched yet, or nothing any more. It is one request for each broker.
func (s *session) learnEnds() {
	asked, partitions := []*claim{}, map[string][]int32{}
	for _, cl := range s.allClaims() {
		if cl.needsEnd() {
			asked = append(asked, cl)
			partitions[cl.topic.name] = append(partitions[cl.topic.name], cl.partition)
		}
	}
	ends := listOffsets(s.client, partitions, sarama.ReadUncommitted)
	for _, cl := range asked {
		end, ok := ends[cl.topic.name][cl.partition]
		cl.mu.Lock()
		cl.logEnd, cl.endKnown, cl.endLost = end, ok, !ok
		cl.mu.Unlock()
	}
}

// needsEnd reports whether the end of the log is not known by fetches.
func (cl *claim) needsEnd() bool {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	needs := cl.pausedBy != "" || cl.userPause != nil || cl.source.HighWaterMarkOffset() == 0 || cl.fetchErr != nil &&
		time.Since(cl.fetchErrAt) < fetchErrFresh
	cl.endLost = cl.endLost && needs
	return needs
}

// idleClaims returns the claims that hold no message and know where they stand.
func (s *session) idleClaims() (idle []*claim, partitions map[string][]int32) {
	partitions = map[string][]int32{}
	for _, cl := range s.allClaims() {
		if _, ok := cl.idlePosition(); ok {
			idle = append(idle, cl)
			partitions[cl.topic.name] = append(partitions[cl.topic.name], cl.partition)
		} else {
			cl.heldBack(0, 0)
		}
	}
	return idle, partitions
}

// idlePosition returns the position of a claim that has nothing to do.
func (cl *claim) idlePosition() (position int64, ok bool) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	position = cl.position()
	return position, position >= 0 && cl.held == 0 && cl.begins()
}

// position is the offset behind all that has finished, from the start of the partition's log or of the claim on; -1
// while it is not known. It is called under the lock.
func (cl *claim) position() int64 {
	if next, ok := cl.tracker.Committable(); ok {
		return next
	}
	if it := cl.open.oldest; it != nil {
		return it.offset
	}
	return max(-1, cl.first)
}

// passMarkers moves the position over offsets that have no message, up to the end of what can be read.
func (cl *claim) passMarkers(ctx context.Context, client sarama.Client, end int64) {
	position, ok := cl.idlePosition()
	if !ok || position >= end {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, endsTimeout)
	defer cancel()
	at, err := topicwindow.NextRecord(ctx, client, cl.topic.name,
		topicwindow.Range{Partition: cl.partition, From: position, To: end})
	if err != nil && at == position {
		return // looked at again soon; what cannot be read is told by the fetches
	}
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if !cl.stopped && cl.tracker.Skip(at) {
		cl.settle(time.Now())
	}
}

// heldBack notes that all up to readable is finished, and that messages behind it wait for the end of a transaction.
func (cl *claim) heldBack(readable, newest int64) {
	cl.mu.Lock()
	t := &cl.transaction
	if waits := newest > readable && cl.held == 0 && cl.position() >= readable; !waits || t.since.IsZero() ||
		readable != t.at {
		*t = openTransaction{at: readable}
		if waits {
			t.since = time.Now()
		}
	}
	tell := !t.since.IsZero() && !t.told && time.Since(t.since) > transactionTold
	t.told = t.told || tell
	since := t.since
	cl.mu.Unlock()
	if tell {
		cl.run.log.Warn("einmal: a producer's transaction stays open, the messages behind it wait for its end",
			cl.attrs(slog.Int64(attrOffset, readable), seconds("open", time.Since(since)))...)
	}
}

// openTransaction is one that holds a partition back.
type openTransaction struct {
	at    int64     // the last stable offset
	since time.Time // it has been seen to stand there; zero if nothing waits
	told  bool
}
