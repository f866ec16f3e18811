package kafkaconf

import "github.com/IBM/sarama"

// OpenPassword says that the configuration sends a password that everybody on the way can read; "" if it does not.
func OpenPassword(c *sarama.Config) string {
	if c.Net.SASL.Enable && (c.Net.SASL.Mechanism == "" || c.Net.SASL.Mechanism == sarama.SASLTypePlaintext) &&
		!c.Net.TLS.Enable {
		return "SASL PLAIN without TLS sends the password of Kafka's user in clear text: enable TLS, or take SCRAM"
	}
	return ""
}
