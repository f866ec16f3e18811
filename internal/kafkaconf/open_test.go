package kafkaconf

import (
	"testing"

	"github.com/IBM/sarama"
)

func TestOpenPassword(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sasl, tls bool
		mechanism sarama.SASLMechanism
		open      bool
	}{
		{open: false},
		{sasl: true, open: true},
		{sasl: true, mechanism: sarama.SASLTypePlaintext, open: true},
		{sasl: true, mechanism: sarama.SASLTypePlaintext, tls: true},
		{sasl: true, mechanism: sarama.SASLTypeSCRAMSHA512},
		{tls: true, mechanism: sarama.SASLTypePlaintext},
	} {
		conf := sarama.NewConfig()
		conf.Net.SASL.Enable, conf.Net.SASL.Mechanism, conf.Net.TLS.Enable = c.sasl, c.mechanism, c.tls
		if says := OpenPassword(conf); (says != "") != c.open {
			t.Errorf("%+v: %q", c, says)
		}
	}
}
