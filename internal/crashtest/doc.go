// Package crashtest holds tests that kill a service at every step of a message's life, and look at what is left.
//
// A child process, which is the test binary started once more, consumes with the real chain on a real PostgreSQL, and
// ends itself with SIGKILL at an exact point:
//
//	deliver ▸ BEGIN ▸ record ▸ handler ▸ COMMIT sent ▸ COMMIT answered ▸ mark ▸ offset commit sent ▸ answered
//	       ▲       ▲        ▲         ▲             ▲                 ▲      ▲                      ▲
//
// while it runs, drains after SIGTERM, or drains because another member joins. Others are killed at random moments,
// frozen, cut off from the database or from Kafka. Then a second process finishes the work. The parent knows every
// message and looks from outside, all the time: no committed offset may be ahead of the effects, and at the end every
// event has taken effect exactly once, in a table that would take a row twice. Package audit says so too, from what
// Kafka and the database have; in TestChurn also while members come and go.
//
// go test -run AtRandom -timeout 1h ./internal/crashtest -crash.kills=1000 makes 1,000 random kills instead of what
// EINMAL_CRASH_KILLS says, or 25. Two or three kills take about a second. With -run Churn, -crash.churn=10m has five
// members come and go for ten minutes in each order, instead of what EINMAL_CHURN says, or 8 s.
package crashtest
