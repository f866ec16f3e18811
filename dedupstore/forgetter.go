package dedupstore

import "context"

// Forgetter is implemented by stores that can delete a record. Who does that must be sure that the record stands for no
// effect: for a dead letter, say, whose message is published again in the same transaction.
type Forgetter[Tx any] interface {
	// Forget deletes, through tx, the record of key and those of its hand-ons, see Key.HandOn. The caller commits; a
	// record that is not there is no error, one that is there afterwards is. It waits for another transaction that holds
	// the record.
	Forget(ctx context.Context, tx Tx, key Key) error
}

// handOn stands between the consumer's name and the stage's in the key of a hand-on.
const handOn = "/retry/"

// HandOn returns the key under which it is recorded that the event was handed on to a stage of its retries, a retry
// topic: never the event's own key, which is for its effect.
func (k Key) HandOn(stage string) Key {
	return Key{Consumer: k.HandOns() + stage, Event: k.Event}
}

// HandOns is what the consumers of all keys of hand-ons of k begin with, for implementations of Forgetter.
func (k Key) HandOns() string { return k.Consumer + handOn }
