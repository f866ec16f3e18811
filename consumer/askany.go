package consumer

import (
	"slices"

	"github.com/IBM/sarama"
)

// askAny asks one broker after the other until one answers: any of them can, and one that is frozen or away must not
// matter. Those that have not answered yet fail at once (see kafkaconf.Connect).
func askAny[T any](client sarama.Client, ask func(*sarama.Broker) (T, error)) (answer T, err error) {
	brokers := client.Brokers()
	if b := client.LeastLoadedBroker(); b != nil {
		brokers = slices.Insert(slices.DeleteFunc(brokers, func(other *sarama.Broker) bool { return other == b }), 0, b)
	}
	err = sarama.ErrOutOfBrokers
	for _, b := range brokers {
		_ = b.Open(client.Config()) // it may be open
		if answer, err = ask(b); err == nil {
			return answer, nil
		}
		_ = b.Close() // else it is not opened again
	}
	return answer, err
}

// askTopics asks for topics.
func askTopics(client sarama.Client, names []string) (*sarama.MetadataResponse, error) {
	return askAny(client, func(b *sarama.Broker) (*sarama.MetadataResponse, error) {
		return b.GetMetadata(sarama.NewMetadataRequest(client.Config().Version, names))
	})
}
