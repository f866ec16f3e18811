// Package schemaregistry keeps the schemas that messages name, for the codecs of Avro and Protobuf.
//
// A Registry asks a schema registry that speaks Confluent's API, which those of Confluent, Redpanda, Apicurio, Karapace
// and others do. The client is franz-go's, which has the options for addresses, TLS and credentials:
//
//	client, err := sr.NewClient(sr.URLs("https://registry:8081"), sr.BasicAuth(user, password))
//	registry := schemaregistry.New(client, nil)
//	decode, err := avrocodec.NewDecoder[OrderConfirmed](registry, schema, nil)
//
// A schema never changes under its id, so that each is fetched once by a process.
//
// A registry that does not answer, or refuses the client, is not the event's fault: the message is attempted again, by
// consumer.RetryAfter, no attempt of it counts for middleware.Retry, and it is never a dead letter for that.
package schemaregistry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/sr"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
)

// Config is what is optional about a Registry. A nil Config, or a zero field, is the default.
type Config struct {
	// Timeout is how long one request to the registry may take. A transaction may be open meanwhile, and its message
	// waits. Defaults to 2 s.
	Timeout time.Duration

	// RetryAfter is the pause after a request that failed: no other one is made before it has passed, for whatever
	// message. Defaults to 1 s.
	RetryAfter time.Duration

	// UnknownFor is how long a schema that the registry does not know is asked for again, since a replica of the registry
	// may be behind its leader. Then the message is to blame, and the error is permanent. Defaults to 1 minute.
	UnknownFor time.Duration
}

const (
	defaultTimeout    = 2 * time.Second
	defaultRetryAfter = time.Second
	defaultUnknownFor = time.Minute

	// maxUnknown is how many ids that the registry does not know are remembered: any bytes may look like an id.
	maxUnknown = 1000
)

// Registry fetches schemas and keeps them. It is safe for concurrent use.
type Registry struct {
	client *sr.Client
	cfg    Config

	mu      sync.Mutex
	byID    map[int]*fetch
	unknown map[int]time.Time // since when the registry does not know an id
	failure error             // of the last request, until retryAt
	retryAt time.Time
}

// fetch is one request for a schema, for which many may wait.
type fetch struct {
	done   chan struct{}
	schema sr.Schema
	err    error
}

// New returns a Registry. It asks for nothing yet. It panics if client is nil.
func New(client *sr.Client, cfg *Config) *Registry {
	if client == nil {
		panic("schemaregistry: New needs a client: make one with sr.NewClient")
	}
	r := &Registry{client: client, byID: map[int]*fetch{}, unknown: map[int]time.Time{}}
	if cfg != nil {
		r.cfg = *cfg
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&r.cfg.Timeout, defaultTimeout}, {&r.cfg.RetryAfter, defaultRetryAfter}, {&r.cfg.UnknownFor, defaultUnknownFor}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return r
}

// ByID returns the schema with an id. Its error is one for a decoder that is passed to consumer.DecodeTx: a
// consumer.RetryAfter if the registry is to blame, and any other if the id is.
func (r *Registry) ByID(id int) (sr.Schema, error) {
	r.mu.Lock()
	f, begun := r.byID[id], true
	if f == nil {
		if time.Now().Before(r.retryAt) {
			defer r.mu.Unlock()
			return sr.Schema{}, r.later(r.failure)
		}
		f, begun = &fetch{done: make(chan struct{})}, false
		r.byID[id] = f
	}
	r.mu.Unlock()
	if !begun {
		r.fetch(id, f)
	}
	<-f.done
	return f.schema, f.err
}

// fetch asks for the schema, and forgets that it did unless the answer is for good.
func (r *Registry) fetch(id int, f *fetch) {
	defer close(f.done)
	f.schema, f.err = ask(r, func(ctx context.Context) (sr.Schema, error) { return r.client.SchemaByID(ctx, id) })
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case f.err == nil:
		delete(r.unknown, id)
		return
	case isUnknown(f.err):
		f.err = r.notThere(id)
	default:
		f.err = r.away(fmt.Errorf("get schema %d: %w", id, f.err))
	}
	delete(r.byID, id)
}

// notThere is the error for an id that the registry does not know.
func (r *Registry) notThere(id int) error {
	since, ok := r.unknown[id]
	if !ok {
		if len(r.unknown) >= maxUnknown {
			clear(r.unknown)
		}
		since = time.Now()
		r.unknown[id] = since
	}
	err := fmt.Errorf("the registry does not know schema %d: the message was written with another registry, or is not in the wire format", id)
	if time.Since(since) >= r.cfg.UnknownFor {
		return err
	}
	return r.later(dedupstore.WithClass(dedupstore.Unavailable, err))
}

// away is the error for a registry that does not do what it is asked for. Further requests wait for a while.
func (r *Registry) away(err error) error {
	class := dedupstore.Unavailable
	if status(err) >= http.StatusBadRequest && status(err) < http.StatusInternalServerError &&
		status(err) != http.StatusTooManyRequests {
		class = dedupstore.Misconfigured // the credentials, or an address that is not a registry's
	}
	r.failure, r.retryAt = dedupstore.WithClass(class, fmt.Errorf("schema registry: %w", err)),
		time.Now().Add(r.cfg.RetryAfter)
	return r.later(r.failure)
}

func (r *Registry) later(err error) error { return consumer.RetryAfter(r.cfg.RetryAfter, err) }

// Version is a version of a subject. Number is that of the subject's newest one if it is Latest.
type Version struct {
	ID      int
	Number  int
	Subject string
	Schema  sr.Schema
}

// Latest asks ByVersion for the newest version of a subject.
const Latest = -1

// ByVersion returns a version of a subject. It asks the registry each time.
func (r *Registry) ByVersion(ctx context.Context, subject string, version int) (Version, error) {
	return r.version(ctx, fmt.Sprintf("get version %d of subject %q", version, subject),
		func(ctx context.Context) (sr.SubjectSchema, error) {
			return r.client.SchemaByVersion(ctx, subject, version)
		})
}

// Lookup returns the version of a subject that has this schema. It asks the registry each time. The error wraps
// ErrNotRegistered if there is none.
func (r *Registry) Lookup(ctx context.Context, subject string, schema sr.Schema) (Version, error) {
	return r.version(ctx, fmt.Sprintf("look up the schema in subject %q", subject),
		func(ctx context.Context) (sr.SubjectSchema, error) {
			return r.client.LookupSchema(ctx, subject, schema)
		})
}

// Register adds the schema to a subject, or finds that it is there.
func (r *Registry) Register(ctx context.Context, subject string, schema sr.Schema) (Version, error) {
	return r.version(ctx, fmt.Sprintf("register the schema in subject %q", subject),
		func(ctx context.Context) (sr.SubjectSchema, error) {
			return r.client.CreateSchema(ctx, subject, schema)
		})
}

// ErrNotRegistered is wrapped by the errors for a subject that does not exist, or does not have the schema or the
// version.
var ErrNotRegistered = errors.New("it is not registered")

func (r *Registry) version(ctx context.Context, what string,
	f func(context.Context) (sr.SubjectSchema, error)) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	s, err := f(ctx)
	switch {
	case err == nil:
		return Version{ID: s.ID, Number: s.Version, Subject: s.Subject, Schema: s.Schema}, nil
	case isUnknown(err):
		return Version{}, fmt.Errorf("schema registry: %s: %w", what, ErrNotRegistered)
	}
	return Version{}, fmt.Errorf("schema registry: %s: %w", what, clean(err))
}

// ask calls f with the time-out, and cleans its error.
func ask[T any](r *Registry, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Timeout)
	defer cancel()
	answer, err := f(ctx)
	return answer, clean(err)
}

// Reference is a schema that another one imports, under the name by which it does.
type Reference struct {
	Name   string
	Schema sr.Schema
}

// References returns what a schema imports, and what that does, each before those that need it. Its error is one for a
// decoder, as that of ByID.
func (r *Registry) References(schema sr.Schema) ([]Reference, error) {
	var all []Reference
	seen := map[string]bool{}
	var add func(sr.Schema) error
	add = func(s sr.Schema) error {
		for _, ref := range s.References {
			if seen[ref.Name] {
				continue
			}
			seen[ref.Name] = true
			v, err := r.reference(ref)
			if err != nil {
				return err
			}
			if err := add(v.Schema); err != nil {
				return err
			}
			all = append(all, Reference{ref.Name, v.Schema})
		}
		return nil
	}
	return all, add(schema)
}

func (r *Registry) reference(ref sr.SchemaReference) (Version, error) {
	v, err := r.ByVersion(context.Background(), ref.Subject, ref.Version)
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		return Version{}, r.away(fmt.Errorf("a schema that others import: %w", err))
	}
	return v, nil
}
