package consumer

import "testing"

// Where brokers keep a group follows from its name. The hashes are those of Java's String.hashCode.
func TestOffsetsPartition(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int32{
		"":                     0,
		"a":                    97 % 50,
		"hello":                99162322 % 50,
		"billing-service":      1374429539 % 50,
		"polygenelubricants":   0, // its hash is the smallest number
		"GydZG_":               0, // and so is this one's
		"DESIGNING WORKHOUSES": 0,
	} {
		if got := offsetsPartition(name, 50); got != want {
			t.Errorf("%q is in partition %d, want %d", name, got, want)
		}
	}
}

// What is in the topic beside offsets is passed over, and so is what is broken.
func TestCommitKey(t *testing.T) {
	t.Parallel()
	good := "\x00\x01\x00\x01g\x00\x02tt\x00\x00\x00\x07"
	if p, ok := commitKey([]byte(good), "g"); !ok || p != (TopicPartition{"tt", 7}) {
		t.Errorf("%v, %v", p, ok)
	}
	for _, key := range []string{"", "\x00", "\x00\x02\x00\x01g", "\x00\x01\x00\x01h\x00\x02tt\x00\x00\x00\x07",
		good[:len(good)-1], good + "x", "\x00\x01\xff\xffg"} {
		if _, ok := commitKey([]byte(key), "g"); ok {
			t.Errorf("%q is one", key)
		}
	}
}
