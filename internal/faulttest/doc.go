// Package faulttest holds tests that break a real Apache Kafka of three nodes under a group of two members, and their
// connections to it: leaders and coordinators are killed and frozen, all brokers go away, connections are cut in the
// middle of a fetch and of a commit, a member alone loses the coordinator, a member dies.
//
// A producer writes all the time, every call of a handler is written down with its member and its time, and effects are
// counted by event. After each fault consumption must resume by itself in time, every message that was acknowledged to
// the producer must have been delivered, every event must have taken effect once, what was delivered again must have
// been in flight, no partition may have two owners, and the committed offsets must be the ends of the log. The figures
// are printed as a table: see docs/faults.md.
//
// The tests need a cluster of their own, by Docker (EINMAL_KAFKA_IMAGE) or from jars (EINMAL_KAFKA_JARS), and some
// minutes, so they run only when they are asked for:
//
//	EINMAL_REQUIRE_KAFKA=1 go test ./internal/faulttest                      # the short form, as in CI: brokers are fenced after 3 s
//	go test -v -timeout 60m ./internal/faulttest -faults.full                # all faults, Kafka's own 9 s, plain sarama beside einmal
package faulttest
