package consumer

import (
	"iter"

	"github.com/IBM/sarama"
)

// askAny asks one broker after the other until one answers: any of them can, and one that is frozen or away must not
// matter. Those that have not answered yet fail at once (see kafkaconf.Connect).
func askAny[T any](client sarama.Client, ask func(*sarama.Broker) (T, error)) (answer T, err error) {
	err = sarama.ErrOutOfBrokers
	for b := range openBrokers(client) {
		if answer, err = ask(b); err == nil {
			return answer, nil
		}
		_ = b.Close() // else it is not opened again
	}
	return answer, err
}

// openBrokers are the brokers of a client, the one with the least to do first. The client opens each, under its lock:
// one that were opened beside that, just after the client was closed, would stay open for ever.
func openBrokers(client sarama.Client) iter.Seq[*sarama.Broker] {
	return func(yield func(*sarama.Broker) bool) {
		brokers := client.Brokers()
		least := client.LeastLoadedBroker()
		if least != nil && !yield(least) {
			return
		}
		for _, b := range brokers {
			if b == least {
				continue
			}
			if b, err := client.Broker(b.ID()); err == nil && !yield(b) {
				return
			}
		}
	}
}

// askTopics asks for topics.
func askTopics(client sarama.Client, names []string) (*sarama.MetadataResponse, error) {
	return askAny(client, func(b *sarama.Broker) (*sarama.MetadataResponse, error) {
		return b.GetMetadata(sarama.NewMetadataRequest(client.Config().Version, names))
	})
}
