// Package kafkaconf is what users of Kafka's client in this module share: connections that can be cut, and the check of
// a configuration that a user's function has edited.
package kafkaconf
