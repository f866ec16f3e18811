// Package topicwindow reads a window of a topic, from some offset or time to another, outside of any consumer group:
// nothing is committed, nobody is rebalanced. consumer.Replay and the commands read by it.
//
// It fetches by itself rather than by sarama's consumer, because it must know where it stands: a window can end with
// markers of transactions, or where compaction left nothing, and a reader that waits for the last record of it would
// wait for ever.
package topicwindow
