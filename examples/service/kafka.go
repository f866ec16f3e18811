package main

import (
	"crypto/tls"

	"github.com/IBM/sarama"
)

// kafka is how the service comes to the brokers: by TLS, and with a name and a password, if the environment says so.
// Consumer and relay have it in common.
func (c config) kafka(client *sarama.Config) {
	client.ClientID = "orders-service"
	if c.tls {
		client.Net.TLS.Enable = true
		client.Net.TLS.Config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if c.user != "" {
		client.Net.SASL.Enable = true
		client.Net.SASL.Mechanism = sarama.SASLTypePlaintext
		client.Net.SASL.User, client.Net.SASL.Password = c.user, c.password
	}
}
