package idempotency

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/einmal-go/einmal/dedupstore"
)

// MaxKeyLen is the length of the longest key, in bytes, that a Transport sends. Servers that are known to take keys
// take between 36 and 255 bytes; those of Key have 36.
const MaxKeyLen = 255

// ErrNoKey is wrapped by the errors for a call whose key cannot be told.
var ErrNoKey = errors.New("no idempotency key")

// derivation is hashed before the parts of every key: keys of another derivation would differ from all that were ever
// sent.
const derivation = "einmal idempotency key 1"

// Key derives the idempotency key of a call from the parts that say what the call is for: the operation, the entity,
// and whatever else tells two calls apart that must both take effect. The same parts give the same key, in every
// process and every version of einmal; other parts, and parts divided elsewhere ("a", "bc" and "ab", "c"), give another
// one. An empty part is a part like others: see to it that an identifier which is missing does not become one.
//
// The key has the form of a UUID, 36 characters of ASCII: servers differ in what they take, and this is what all of
// them do. It is version 8 of RFC 9562, of the first 122 bits of the SHA-256 over the parts, each behind its length. A
// key is no secret: who knows the parts knows the key. Where several parties share an account at a server, let one part
// be a secret.
func Key(parts ...string) string {
	buf := append(make([]byte, 0, 256), derivation...)
	for _, part := range parts {
		buf = binary.BigEndian.AppendUint64(buf, uint64(len(part)))
		buf = append(buf, part...)
	}
	sum := sha256.Sum256(buf)
	return uuid8([16]byte(sum[:16]))
}

// uuid8 writes b as a UUID of version 8 and the variant of RFC 9562, which take six of its bits.
func uuid8(b [16]byte) string {
	b[6] = b[6]&0x0f | 0x80
	b[8] = b[8]&0x3f | 0x80
	text := make([]byte, 0, 36)
	for i := 0; i < len(b); i = groupEnd(i) {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, b[i:groupEnd(i)])
	}
	return string(text)
}

// groupEnd is where the group of a UUID's bytes ends that begins at i: there are groups of 4, 2, 2, 2 and 6.
func groupEnd(i int) int {
	switch i {
	case 0:
		return 4
	case 4, 6, 8:
		return i + 2
	default:
		return 16
	}
}

// KeyFor derives the idempotency key of a call that a handler makes: from the consumer and the event that ctx carries,
// and from step, which names the call among those of the handler. A redelivery, a restart, a redriven dead letter and a
// replay give the same key, another event or another consumer gives another one. If a step makes several calls, more
// parts tell them apart: the number of the item in the event, for example, and never anything that is drawn or read
// anew, such as the time.
//
//	key, err := idempotency.KeyFor(ctx, "charge")
//
// It is Key(consumer, event, step, more...) of dedupstore.KeyFrom, which middleware.Dedup sets; whoever renames the
// consumer changes the keys of what is still under way. The error, which wraps ErrNoKey, says that ctx carries no event
// or that step is empty.
func KeyFor(ctx context.Context, step string, more ...string) (string, error) {
	effect, ok := dedupstore.KeyFrom(ctx)
	switch {
	case !ok:
		return "", fmt.Errorf("%w: the context carries no event: call KeyFor with the context that the handler of middleware.Dedup "+
			"was given, or derive a key from identifiers of your own with Key", ErrNoKey)
	case step == "":
		return "", fmt.Errorf("%w: the step is empty: name it, charge for example, to tell it from others of the same handler", ErrNoKey)
	case effect.Consumer == "" || effect.Event == "":
		return "", fmt.Errorf("%w: the event that the context carries has no consumer or no id: set both in dedupstore.WithKey", ErrNoKey)
	}
	return Key(append([]string{effect.Consumer, effect.Event, step}, more...)...), nil
}
