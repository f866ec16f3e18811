// Package forward sends messages on to Kafka that their consumer has not handled, as events of the outbox: what is sent
// is written in the same transaction as the record that says so, and a relay brings it to Kafka, whatever is killed in
// between.
//
//	DeadLetters   a message that was given up becomes an event of a dead-letter topic
//	Redrive       a dead letter of a table goes back to the topic from which it came
//	RetryTopics   a message that has failed comes back after 1 min, 10 min, 1 h, without holding up others
//
// The package writes by whatever writer of the outbox belongs to the store: pgxoutbox's to pgxstore, sqloutbox's to
// sqlstore, bunoutbox's to bunstore.
package forward
