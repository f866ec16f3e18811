// Package codectest has what the tests of the codecs share.
package codectest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
)

// Server is a schema registry of the test's own.
type Server struct {
	*schemaregistry.Registry
	Requests atomic.Int64
	Away     atomic.Bool // it answers with status 503

	t testing.TB
}

// NewServer starts one.
func NewServer(t testing.TB) *Server {
	t.Helper()
	s, fake := &Server{t: t}, srfake.NewRegistry()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.Requests.Add(1)
		if s.Away.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fake.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	client, err := sr.NewClient(sr.URLs(server.URL))
	if err != nil {
		t.Fatal(err)
	}
	s.Registry = schemaregistry.New(client, nil)
	return s
}

// Add registers a schema under a subject and returns its id.
func (s *Server) Add(subject, schema string, kind sr.SchemaType, references ...sr.SchemaReference) int {
	s.t.Helper()
	v, err := s.Register(s.t.Context(), subject, sr.Schema{Schema: schema, Type: kind, References: references})
	if err != nil {
		s.t.Fatal(err)
	}
	return v.ID
}

// Secret is a text in values that no error may show.
const Secret = "s3cret-value"

// Refused fails the test unless err is a permanent error, that of a message that cannot be decoded, and says all the
// texts and no secret.
func Refused(t testing.TB, err error, texts ...string) {
	t.Helper()
	decode := func(*consumer.Message) (int, error) { return 0, err }
	err = consumer.Decode(decode, nothing).Handle(t.Context(), &consumer.Message{})
	if !consumer.IsPermanent(err) {
		t.Errorf("%v, want a permanent error", err)
		return
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("it says %q, want %q", err, text)
		}
	}
	if strings.Contains(err.Error(), Secret) {
		t.Errorf("it shows the value: %q", err)
	}
}

func nothing(context.Context, int) error { return nil }
