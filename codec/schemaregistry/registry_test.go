package schemaregistry_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/sr"
	"github.com/twmb/franz-go/pkg/sr/srfake"

	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
)

// server answers as broken says, and else as a registry that has schema 7. It counts the requests.
type server struct {
	*httptest.Server
	requests atomic.Int64
	broken   atomic.Pointer[http.HandlerFunc]
}

func newServer(t *testing.T) *server {
	t.Helper()
	fake := srfake.NewRegistry()
	fake.SeedSchema("orders-value", 1, 7, sr.Schema{Schema: `"string"`})
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.requests.Add(1)
		if broken := s.broken.Load(); broken != nil {
			(*broken)(w, r)
			return
		}
		fake.Handler().ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) breakIt(h http.HandlerFunc) { s.broken.Store(&h) }

func registry(t *testing.T, address string, cfg *schemaregistry.Config) *schemaregistry.Registry {
	t.Helper()
	client, err := sr.NewClient(sr.URLs(address), sr.BasicAuth("ann", "s3cret"))
	if err != nil {
		t.Fatal(err)
	}
	return schemaregistry.New(client, cfg)
}

func TestSchemaIsFetchedOnce(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := registry(t, s.URL, nil)
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 20 {
				if schema, err := r.ByID(7); err != nil || schema.Schema != `"string"` {
					t.Errorf("ByID() = %v, %v", schema, err)
				}
			}
		})
	}
	all.Wait()
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests for one schema", n)
	}
}

// What the registry is to blame for is attempted again, is no fault of the event, and says nothing that is not for a
// log.
func TestRegistryIsToBlame(t *testing.T) {
	t.Parallel()
	says := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, test := range map[string]struct {
		breaks http.HandlerFunc
		class  dedupstore.Class
		text   string
	}{
		"it fails": {says(500, `{"error_code": 50001, "message": "s3cret"}`), dedupstore.Unavailable,
			"HTTP status 500 Internal Server Error, error_code 50001"},
		"it is overloaded": {says(429, "s3cret"), dedupstore.Unavailable, "HTTP status 429"},
		"it refuses us": {says(401, `{"error_code": 401, "message": "ann s3cret"}`), dedupstore.Misconfigured,
			"HTTP status 401"},
		"it is another server": {says(404, "<html>s3cret</html>"), dedupstore.Misconfigured, "HTTP status 404 Not Found"},
		"it answers not at all": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			dedupstore.Unavailable, "no answer"},
		"it hangs": {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			dedupstore.Unavailable, "no answer"},
		"it says nonsense": {says(200, "s3cret"), dedupstore.Unavailable, "get schema 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			r := registry(t, s.URL, &schemaregistry.Config{Timeout: 300 * time.Millisecond, RetryAfter: 50 * time.Millisecond})
			s.breakIt(test.breaks)
			_, err := r.ByID(7)
			if d, ok := consumer.Delay(err); !ok || d != 50*time.Millisecond {
				t.Errorf("ByID() = %v, which is no RetryAfter", err)
			}
			if class := dedupstore.ClassOf(err); class != test.class {
				t.Errorf("the class is %v, want %v", class, test.class)
			}
			if !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("it says %q, want %q", err, test.text)
			}
			s.broken.Store(nil)
			for err != nil {
				_, err = r.ByID(7)
			}
		})
	}
}

func TestNobodyAsksWhileTheRegistryIsAway(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	r := registry(t, s.URL, &schemaregistry.Config{RetryAfter: time.Hour})
	s.breakIt(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	for id := range 100 {
		if _, err := r.ByID(id); err == nil {
			t.Error("an answer")
		}
	}
	if n := s.requests.Load(); n != 1 {
		t.Errorf("%d requests within the pause", n)
	}
}

// A schema that the registry does not know is asked for again for a while, and then the message is to blame.
func TestUnknownSchema(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	patient := registry(t, s.URL, nil)
	_, err := patient.ByID(8)
	if _, again := consumer.Delay(err); !again || dedupstore.ClassOf(err) != dedupstore.Unavailable {
		t.Errorf("ByID() = %v, want another attempt", err)
	}
	r := registry(t, s.URL, &schemaregistry.Config{UnknownFor: 100 * time.Millisecond})
	for again := true; again; {
		_, err = r.ByID(8)
		_, again = consumer.Delay(err)
	}
	if err == nil || !strings.Contains(err.Error(), "does not know schema 8") {
		t.Errorf("ByID() = %v", err)
	}
	if _, err := r.ByID(7); err != nil {
		t.Errorf("another schema: %v", err)
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	r := registry(t, newServer(t).URL, nil)
	known, other := sr.Schema{Schema: `"string"`}, sr.Schema{Schema: `"long"`}
	if v, err := r.Lookup(t.Context(), "orders-value", known); err != nil || v.ID != 7 || v.Number != 1 {
		t.Errorf("Lookup() = %+v, %v", v, err)
	}
	if _, err := r.Lookup(t.Context(), "orders-value", other); !errors.Is(err, schemaregistry.ErrNotRegistered) {
		t.Errorf("Lookup() of another schema = %v", err)
	}
	if v, err := r.ByVersion(t.Context(), "orders-value", schemaregistry.Latest); err != nil || v.ID != 7 {
		t.Errorf("ByVersion() = %+v, %v", v, err)
	}
	if _, err := r.ByVersion(t.Context(), "refunds-value", schemaregistry.Latest); !errors.Is(err,
		schemaregistry.ErrNotRegistered) || !strings.Contains(err.Error(), "refunds-value") {
		t.Errorf("ByVersion() of no subject = %v", err)
	}
	v, err := r.Register(t.Context(), "refunds-value", other)
	if err != nil || v.Number != 1 {
		t.Errorf("Register() = %+v, %v", v, err)
	}
	if again, err := r.Register(t.Context(), "refunds-value", other); err != nil || again.ID != v.ID {
		t.Errorf("Register() again = %+v, %v", again, err)
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	r := registry(t, newServer(t).URL, nil)
	register := func(subject, schema string, references ...sr.SchemaReference) sr.Schema {
		s := sr.Schema{Schema: schema, References: references}
		if _, err := r.Register(t.Context(), subject, s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	register("a", `{"type": "fixed", "name": "a", "size": 1}`)
	register("b", `{"type": "array", "items": "a"}`, sr.SchemaReference{Name: "a", Subject: "a", Version: 1})
	c := register("c", `{"type": "map", "values": "a"}`, sr.SchemaReference{Name: "b", Subject: "b", Version: 1},
		sr.SchemaReference{Name: "a", Subject: "a", Version: 1})
	all, err := r.References(c)
	if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "b" {
		t.Errorf("References() = %v, %v", all, err)
	}
	c.References[1].Version = 9
	c.References = c.References[1:]
	if _, err := r.References(c); err == nil {
		t.Error("a version that is not there")
	} else if _, again := consumer.Delay(err); !again {
		t.Errorf("it is not asked again: %v", err)
	}
}

func TestNewNeedsAClient(t *testing.T) {
	t.Parallel()
	defer func() {
		if recover() == nil {
			t.Error("a registry without a client")
		}
	}()
	schemaregistry.New(nil, nil)
}
