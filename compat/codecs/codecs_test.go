package codecs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/twmb/franz-go/pkg/sr"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/einmal-go/einmal/codec/avrocodec"
	"github.com/einmal-go/einmal/codec/protocodec"
	"github.com/einmal-go/einmal/codec/schemaregistry"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/dedupstore"
	"github.com/einmal-go/einmal/dedupstore/pgxstore"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/middleware"
	"github.com/einmal-go/einmal/outbox"
	"github.com/einmal-go/einmal/outbox/pgxoutbox"
	"github.com/einmal-go/einmal/outbox/relay"
	"github.com/einmal-go/einmal/schema"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// directory is that of a registry, or the test is skipped.
func directory(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("EINMAL_REGISTRY_DIR")
	switch {
	case dir != "":
	case os.Getenv("EINMAL_REQUIRE_REGISTRY") == "1":
		t.Fatal("EINMAL_REQUIRE_REGISTRY=1, and EINMAL_REGISTRY_DIR names no registry")
	default:
		t.Skip("EINMAL_REGISTRY_DIR names no directory of io.apicurio:apicurio-registry-app")
	}
	return dir
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// patience is for what a loaded machine does late.
const patience = 2 * time.Minute

func registryAt(t *testing.T, address string, cfg *schemaregistry.Config) *schemaregistry.Registry {
	t.Helper()
	return schemaregistry.New(must[*sr.Client](t)(sr.NewClient(sr.URLs(address),
		sr.HTTPClient(&http.Client{Timeout: patience}))), cfg)
}

const (
	confirmedV1 = `{"type":"record","name":"Confirmed","namespace":"shop","fields":[{"name":"id","type":"string"}]}`
	confirmedV2 = `{"type":"record","name":"Confirmed","namespace":"shop","fields":[{"name":"id","type":"string"},{"name":"cents","type":"long","default":100}]}`
	cancelled   = `syntax = "proto3"; package google.protobuf; message Other { string text = 1; } message StringValue { string value = 1; }`
)

type confirmed struct {
	ID    string `avro:"id"`
	Cents int64  `avro:"cents"`
}

func TestCodecs(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	p := must[*process](t)(start(dir, "0"))
	t.Cleanup(func() { _ = p.stop() })
	t.Run("from the outbox to the handler", func(t *testing.T) { fromOutboxToHandler(t, p) }) //nolint:paralleltest // the last one kills it
	t.Run("killed and back", func(t *testing.T) { p = killedAndBack(t, dir, p) })             //nolint:paralleltest // as said
}

// Events of two formats and two versions of a schema go from a transaction to a handler, once each.
func fromOutboxToHandler(t *testing.T, p *process) {
	t.Helper()
	registry := registryAt(t, p.address, &schemaregistry.Config{Timeout: patience})
	b, pool := serverstest.InProcess(t), serverstest.Pool(t)
	orders, refusals := b.Topic(t, 1), b.Topic(t, 1)
	must[any](t)(pool.Exec(t.Context(), schema.Postgres.SQL(nil, schema.Dedup, schema.Outbox)+
		"create table effect (what text)"))

	register := &avrocodec.EncoderConfig{Register: true}
	older := must[*avrocodec.Encoder[confirmed]](t)(avrocodec.NewEncoder[confirmed](registry, orders+"-value", confirmedV1,
		register))
	newer := must[*avrocodec.Encoder[confirmed]](t)(avrocodec.NewEncoder[confirmed](registry, orders+"-value", confirmedV2,
		register))
	must[any](t)(registry.Register(t.Context(), refusals+"-value", sr.Schema{Schema: cancelled, Type: sr.TypeProtobuf}))
	proto := must[*protocodec.Encoder[*wrapperspb.StringValue]](t)(protocodec.NewEncoder[*wrapperspb.StringValue](registry,
		refusals+"-value"))
	events := []outbox.Event{
		{Topic: orders, Value: must[[]byte](t)(older.Encode(t.Context(), confirmed{ID: "a"}))},
		{Topic: orders, Value: must[[]byte](t)(newer.Encode(t.Context(), confirmed{ID: "b", Cents: 7}))},
		{Topic: refusals, Value: must[[]byte](t)(proto.Encode(t.Context(), wrapperspb.String("c")))},
	}
	writer := pgxoutbox.NewWriter(nil)
	if err := pgx.BeginFunc(t.Context(), pool,
		func(tx pgx.Tx) error { return writer.Write(t.Context(), tx, events...) }); err != nil {
		t.Fatal(err)
	}

	decode := must[func(*consumer.Message) (confirmed, error)](t)(avrocodec.NewDecoder[confirmed](registry, confirmedV2,
		nil))
	decodeProto := must[func(*consumer.Message) (*wrapperspb.StringValue,
		error)](t)(protocodec.NewDecoder[*wrapperspb.StringValue](registry))
	chain := middleware.Standard(pgxstore.New(pool, nil), nil)
	run(t, func(ctx context.Context) error {
		r, err := relay.New(relay.Config{Brokers: b.Addrs, Database: pgxoutbox.NewDatabase(pool),
			PollInterval: 50 * time.Millisecond})
		if err != nil {
			return err
		}
		return r.Run(ctx)
	})
	run(t, func(ctx context.Context) error {
		return consumer.Run(ctx, consumer.Config{Brokers: b.Addrs, Group: serverstest.Group(t),
			Topics: map[string]consumer.Topic{
				orders: chain.Topic(consumer.DecodeTx(decode, func(ctx context.Context, tx pgx.Tx, e confirmed) error {
					_, err := tx.Exec(ctx, "insert into effect values ($1)", fmt.Sprint(e.ID, " ", e.Cents))
					return err
				})),
				refusals: chain.Topic(consumer.DecodeTx(decodeProto,
					func(ctx context.Context, tx pgx.Tx, e *wrapperspb.StringValue) error {
						_, err := tx.Exec(ctx, "insert into effect values ($1)", e.GetValue())
						return err
					})),
			}})
	})
	want := []string{"a 100", "b 7", "c"}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if got := effects(t, pool); slices.Equal(got, want) {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the effects are %q, want %q", got, want)
		}
	}
}

func effects(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	rows := must[pgx.Rows](t)(pool.Query(t.Context(), "select what from effect order by what"))
	return must[[]string](t)(pgx.CollectRows(rows, pgx.RowTo[string]))
}

// run calls f until the test ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// What this registry says of what it does not have, and what its absence looks like, is what the codecs take it for.
func killedAndBack(t *testing.T, dir string, p *process) *process {
	t.Helper()
	patient := registryAt(t, p.address, &schemaregistry.Config{Timeout: patience, UnknownFor: time.Nanosecond,
		RetryAfter: 10 * time.Millisecond})
	if _, err := patient.Lookup(t.Context(), "orders-value", sr.Schema{Schema: confirmedV1}); !errors.Is(err,
		schemaregistry.ErrNotRegistered) {
		t.Errorf("Lookup() where there is no subject = %v", err)
	}
	v := must[schemaregistry.Version](t)(patient.Register(t.Context(), "orders-value", sr.Schema{Schema: confirmedV1}))
	if _, err := patient.Lookup(t.Context(), "orders-value", sr.Schema{Schema: confirmedV2}); !errors.Is(err,
		schemaregistry.ErrNotRegistered) {
		t.Errorf("Lookup() of another schema = %v", err)
	}
	_, err := patient.ByID(v.ID + 1000)
	for again := true; again; _, again = consumer.Delay(err) {
		_, err = patient.ByID(v.ID + 1000)
	}
	if err == nil {
		t.Error("a schema that nobody registered")
	}
	at := must[*url.URL](t)(url.Parse(p.address))
	if err := p.stop(); err != nil {
		t.Fatal(err)
	}
	_, err = patient.ByID(v.ID)
	if _, again := consumer.Delay(err); !again || dedupstore.ClassOf(err) != dedupstore.Unavailable {
		t.Errorf("ByID() while it is away = %v", err)
	}
	p = must[*process](t)(start(dir, at.Port()))
	v = must[schemaregistry.Version](t)(patient.Register(t.Context(), "orders-value", sr.Schema{Schema: confirmedV1})) // it keeps its schemas in memory
	for again := true; again; _, again = consumer.Delay(err) {
		_, err = patient.ByID(v.ID)
	}
	if err != nil {
		t.Error(err)
	}
	return p
}
