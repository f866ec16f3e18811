package topicwindow

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/IBM/sarama"
)

// errFound ends the reading at the first record.
var errFound = errors.New("found")

// NextRecord looks for a record in a range whose end is one of the log. It returns the offset up to which there is
// none: that of the first record, or the end of what can be read. Markers of transactions, aborted records and what
// compaction left empty are none. With an error the offset is as far as it came.
func NextRecord(ctx context.Context, client sarama.Client, topic string, rg Range) (at int64, err error) {
	r := &Reader{client: client, topic: topic}
	at, err = r.Read(ctx, rg, func(*Record) error { return errFound })
	if errors.Is(err, errFound) {
		err = nil
	}
	return at, err
}

// Decodes fetches once at an offset, as sarama's consumer does, and returns the error if what comes cannot be decoded:
// its checksum is wrong, its compression is unknown, or it is too large when it is decompressed. Other errors say
// nothing about that, and are answered by ok false.
func Decodes(client sarama.Client, topic string, partition int32, at int64) (ok bool, err error) {
	p := &position{reader: &Reader{client: client, topic: topic}, partition: partition, at: at,
		bytes: client.Config().Consumer.Fetch.Default}
	_, err = p.fetch()
	switch {
	case err == nil, errors.Is(err, sarama.ErrOffsetOutOfRange): // it is gone
		return true, nil
	case Undecodable(err):
		return false, err
	default:
		return false, nil
	}
}

// Undecodable reports whether an error of a fetch is none of a broker or of the way to it: then it is one of what has
// come.
func Undecodable(err error) bool {
	var answered sarama.KError
	var broken net.Error
	if err == nil || errors.As(err, &answered) || errors.As(err, &broken) {
		return false
	}
	for _, e := range []error{
		io.EOF, io.ErrClosedPipe, net.ErrClosed, context.Canceled, sarama.ErrNotConnected, sarama.ErrClosedClient,
		sarama.ErrOutOfBrokers, sarama.ErrShuttingDown,
		sarama.ErrBrokerNotFound, sarama.ErrIncompleteResponse, sarama.ErrAlreadyConnected,
	} {
		if errors.Is(err, e) {
			return false
		}
	}
	return true
}

// OutOfRange reports whether an error of Read says that what was to be read is not in the log any more.
func OutOfRange(err error) bool { return errors.Is(err, sarama.ErrOffsetOutOfRange) }
