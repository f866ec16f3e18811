package consumer

import "fmt"

// Order says which messages of a topic may be handled side by side. Offsets are committed in the order of the partition
// whatever the Order: only behind the contiguous prefix of finished messages.
type Order int

const (
	// PartitionOrder handles the messages of a partition one after the other, as Kafka keeps them. A message that fails
	// holds back its partition.
	PartitionOrder Order = iota
	// KeyOrder handles the messages of one key of a partition one after the other, different keys side by side. A message
	// that fails holds back its key. Messages without a key have no order among themselves or to others.
	KeyOrder
	// Unordered handles any messages side by side. A message that fails holds back nothing.
	Unordered
)

// String returns the name of the constant.
func (o Order) String() string {
	switch o {
	case PartitionOrder:
		return "PartitionOrder"
	case KeyOrder:
		return "KeyOrder"
	case Unordered:
		return "Unordered"
	default:
		return fmt.Sprintf("Order(%d)", int(o))
	}
}
