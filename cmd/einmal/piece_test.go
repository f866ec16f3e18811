package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

// The JSON of a message is stable for scripts: text as text, and what is none in base64, each under the name of its
// encoding; null is none at all.
func TestMessageFacts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		key, value []byte
		want       string
	}{
		{nil, nil, `{"key":null,"value":null,"headers":[]}`},
		{[]byte{}, []byte(`{"id": "A-1"}`),
			`{"key":{"text":""},"value":{"text":"{\"id\": \"A-1\"}"},"headers":[]}`},
		{[]byte("Grüße"), []byte{0xff, 0}, `{"key":{"text":"Grüße"},"value":{"base64":"/wA="},"headers":[]}`},
	} {
		var b bytes.Buffer
		if err := printJSON(&b, messageOf(test.key, test.value), ""); err != nil || b.String() != test.want+"\n" {
			t.Errorf("%q, %q: %v, %s", test.key, test.value, err, b.String())
		}
	}
	message := messageOf(nil, nil)
	message.Headers = append(message.Headers, headerOf("event-id", []byte("e-1")), headerOf("none", nil),
		headerOf("bin", []byte{0x80}))
	text, err := json.Marshal(message.Headers)
	want := `[{"name":"event-id","text":"e-1"},{"name":"none"},{"name":"bin","base64":"gA=="}]`
	if err != nil || string(text) != want {
		t.Errorf("%v, %s, want %s", err, text, want)
	}
}
