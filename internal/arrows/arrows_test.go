package arrows

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// allowed is what a package's code, tests aside, may import beside the standard library.
type allowed struct {
	module []string // packages of this module
	others []string // import paths of other modules, with all below them
}

const (
	sarama = "github.com/IBM/sarama"
	pgx    = "github.com/jackc/pgx/v5"
	bun    = "github.com/uptrace/bun"
	otel   = "go.opentelemetry.io/otel" // its API: see never
	all    = "..."

	propagation = "go.opentelemetry.io/otel/propagation" // of it, what puts a trace context into headers

	franz    = "github.com/twmb/franz-go/pkg/sr" // the client of schema registries
	protobuf = "google.golang.org/protobuf"
)

// table has an entry for each package; one that ends with /... stands for all below it.
var table = map[string]allowed{
	"offsets":    {},
	"dedupstore": {},
	"schema":     {},
	"janitor":    {module: []string{"schema", "internal/redact", "internal/safelog", "internal/sqlclass", "internal/sqltable"}},
	"status":     {module: []string{"internal/redact", "internal/safelog"}},
	"consumer": {module: []string{"offsets", "internal/turn", "internal/errtype", "internal/kafkaconf",
		"internal/nils", "internal/redact", "internal/safelog", "internal/topicwindow", "internal/version"},
		others: []string{sarama}},
	"deadletter": {module: []string{"consumer", "dedupstore", "internal/version"}},
	"middleware": {module: []string{"consumer", "internal/turn", "deadletter", "dedupstore",
		"internal/errtype", "internal/meter", "internal/names", "internal/nils", "internal/redact", "internal/safelog",
		"internal/sqlstate"}, others: []string{otel}},
	"audit": {module: []string{"consumer", "deadletter", "dedupstore", "schema", "internal/sqltable",
		"internal/topicwindow"}},
	"middleware/handlertest": {module: []string{"consumer", "consumer/consumertest", "dedupstore", "internal/turn"}},

	// outbox knows no Kafka, but for its relay; its drivers are its writers' and its databases'
	"outbox": {module: []string{"schema", "internal/sqlstate", "internal/sqltable",
		"internal/topicname", "outbox/internal/outboxsql", "outbox/internal/recordsize"}, others: []string{propagation}},
	"outbox/pgxoutbox":           {module: []string{"internal/sqlclass", "outbox"}, others: []string{pgx}},
	"outbox/sqloutbox":           {module: []string{"internal/sqlclass", "outbox"}},
	"outbox/bunoutbox":           {module: []string{"outbox", "outbox/sqloutbox"}, others: []string{bun}},
	"outbox/internal/outboxsql":  {module: []string{"internal/sqltable", "schema"}},
	"outbox/internal/recordsize": {},
	"outbox/internal/tabletest": {
		module: []string{"outbox", "outbox/pgxoutbox", "outbox/sqloutbox", "outbox/bunoutbox", "schema",
			"internal/servers/serverstest"}, others: []string{pgx, bun},
	},
	"outbox/relay": {
		module: []string{
			"outbox", "outbox/internal/outboxsql", "outbox/internal/recordsize", "schema",
			"internal/errtype", "internal/kafkaconf", "internal/names", "internal/redact", "internal/safelog", "internal/sqlstate",
			"internal/topicname",
		},
		others: []string{sarama, otel},
	},
	"outbox/outboxtest":    {module: []string{"outbox", "outbox/relay"}, others: []string{sarama}},
	"internal/kafkaconf":   {others: []string{sarama}},
	"internal/topicwindow": {module: []string{"internal/kafkaconf"}, others: []string{sarama}},

	// the formats that are not JSON: nobody imports them but who uses them
	"codec/schemaregistry": {module: []string{"consumer", "dedupstore"}, others: []string{franz}},
	"codec/avrocodec": {module: []string{"codec/internal/wire", "codec/schemaregistry", "consumer"},
		others: []string{franz, "github.com/hamba/avro/v2"}},
	"codec/protocodec": {module: []string{"codec/internal/wire", "codec/schemaregistry", "consumer"},
		others: []string{franz, protobuf, "github.com/bufbuild/protocompile"}},
	"codec/protocodec/internal/orders": {others: []string{protobuf}},
	"codec/internal/wire":              {module: []string{"consumer"}, others: []string{franz}},
	"codec/internal/codectest":         {module: []string{"codec/schemaregistry", "consumer"}, others: []string{franz}},

	// forward writes messages to the outbox; it knows no driver and no client
	"forward": {module: []string{"consumer", "deadletter", "dedupstore", "middleware", "outbox", "internal/nils",
		"internal/sqlclass", "internal/topicname"}},

	// calls made and served: nothing of consumer, no driver; the stores run in the dedup stores' transactions
	"idempotency":                     {module: []string{"dedupstore", "internal/errtype", "internal/redact", "internal/safelog"}},
	"idempotency/idempotencytest":     {module: []string{"dedupstore", "idempotency"}},
	"idempotency/internal/servertest": {},
	"idempotency/internal/idemtest": {module: []string{"dedupstore", "idempotency", "idempotency/idempotencytest",
		"schema", "internal/servers/serverstest"}, others: []string{pgx}},
	"idempotency/internal/idemsql": {module: []string{"dedupstore", "idempotency", "schema", "internal/sqlstate",
		"internal/sqlclass", "internal/sqltable"}},
	"idempotency/pgxidempotency": {module: []string{"dedupstore", "dedupstore/pgxstore", "idempotency",
		"idempotency/internal/idemsql", "schema"}, others: []string{pgx}},
	"idempotency/sqlidempotency": {module: []string{"dedupstore", "dedupstore/sqlstore", "idempotency",
		"idempotency/internal/idemsql", "schema"}},
	"idempotency/bunidempotency": {
		module: []string{"dedupstore", "dedupstore/bunstore", "dedupstore/sqlstore", "idempotency",
			"idempotency/internal/idemsql", "idempotency/sqlidempotency", "internal/bundriver", "schema"},
		others: []string{bun},
	},
	"internal/errtype":     {module: []string{"internal/sqlstate"}},
	"internal/nils":        {},
	"internal/redact":      {},
	"internal/safelog":     {module: []string{"internal/errtype", "internal/redact"}},
	"internal/sqlstate":    {},
	"internal/sqlclass":    {module: []string{"dedupstore", "internal/sqlstate"}},
	"internal/sqltable":    {},
	"internal/topicname":   {},
	"internal/version":     {},
	"internal/bundriver":   {module: []string{"dedupstore"}},
	"internal/schematest":  {module: []string{"schema"}},
	"internal/statusfacts": {module: []string{"status"}},

	// what measures one part by its Status: nobody else knows both that part and OpenTelemetry's metrics
	"consumer/consumermetrics": {module: []string{"consumer", "internal/meter", "internal/names"},
		others: []string{otel}},
	"outbox/relay/relaymetrics": {module: []string{"outbox/relay", "internal/meter", "internal/names"},
		others: []string{otel}},
	"idempotency/idempotencymetrics": {module: []string{"idempotency", "internal/meter", "internal/names"},
		others: []string{otel}},
	"janitor/janitormetrics": {module: []string{"janitor", "internal/meter", "internal/names"},
		others: []string{otel}},
	"internal/meter": {module: []string{"internal/names"}, others: []string{otel}},
	"internal/names": {others: []string{otel}},

	"consumer/consumertest": {module: []string{"consumer"}},
	"dedupstore/storetest":  {module: []string{"dedupstore"}},
	"dedupstore/memstore":   {module: []string{"dedupstore"}},
	"dedupstore/pgxstore": {module: []string{"dedupstore", "dedupstore/internal/gather", "dedupstore/internal/record"},
		others: []string{pgx}},
	"dedupstore/sqlstore": {module: []string{"dedupstore", "dedupstore/internal/record", "dedupstore/internal/sqltx",
		"schema"}},
	"dedupstore/bunstore": {
		module: []string{"dedupstore", "dedupstore/internal/record", "dedupstore/internal/sqltx", "dedupstore/sqlstore",
			"internal/bundriver", "schema"},
		others: []string{bun},
	},

	"deadletter/pgxdeadletter": {module: []string{"deadletter", "deadletter/internal/deadsql", "schema"},
		others: []string{pgx}},
	"deadletter/sqldeadletter": {module: []string{"deadletter", "deadletter/internal/deadsql", "schema"}},
	"deadletter/bundeadletter": {module: []string{"deadletter", "deadletter/internal/deadsql", "deadletter/sqldeadletter",
		"schema"}, others: []string{bun}},

	// what the tables of dead letters, and their tests, share
	"deadletter/internal/deadsql": {module: []string{"deadletter", "dedupstore", "schema", "internal/sqlclass",
		"internal/sqlstate", "internal/sqltable"}},
	"deadletter/internal/deadtest": {module: []string{"consumer", "deadletter", "dedupstore", "schema",
		"internal/schematest", "internal/servers/serverstest"}, others: []string{pgx, "modernc.org/sqlite"}},

	// what stores share: no driver in it
	"dedupstore/internal/gather": {module: []string{"dedupstore", "internal/turn"}},
	"internal/turn":              {},
	"dedupstore/internal/record": {module: []string{"dedupstore", "internal/safelog", "dedupstore/internal/gather",
		"schema", "internal/sqlclass", "internal/sqlstate", "internal/sqltable"}},
	"dedupstore/internal/sqltx": {module: []string{"dedupstore", "dedupstore/internal/gather",
		"dedupstore/internal/record", "schema"}},

	// what their tests share
	"dedupstore/internal/faultconn":  {},
	"dedupstore/internal/faultproxy": {},
	"dedupstore/internal/losttest":   {},
	"dedupstore/internal/rowtest":    {module: []string{"dedupstore"}},
	"dedupstore/internal/pgtest":     {module: []string{"schema", "internal/servers/serverstest"}, others: []string{pgx}},
	"dedupstore/internal/sqltest": {
		module: []string{"dedupstore", "dedupstore/internal/faultconn", "dedupstore/internal/pgtest", "dedupstore/sqlstore",
			"dedupstore/storetest", "schema"},
		others: []string{pgx, bun, "modernc.org/sqlite"},
	},

	// the pages for operators: they know the parts that they show by their contracts, no driver and no client of Kafka
	"console/internal/auditsql": {module: []string{"console", "internal/sqltable", "schema"}},
	"console/pgxaudit":          {module: []string{"console/internal/auditsql", "schema"}, others: []string{pgx}},
	"console/sqlaudit":          {module: []string{"console/internal/auditsql", "schema"}},
	"console": {module: []string{"consumer", "deadletter", "internal/nils", "internal/redact",
		"internal/safelog", "internal/statusfacts", "outbox", "schema", "status"}},

	// what tests and the demo share knows nothing of what they test and show
	// the binary for operators
	"cmd/einmal": {
		module: []string{"audit", "console", "console/sqlaudit", "middleware", "schema", "consumer", "deadletter",
			"deadletter/sqldeadletter", "internal/redact", "internal/statusfacts", "dedupstore", "dedupstore/sqlstore",
			"forward", "internal/topicwindow", "outbox", "outbox/sqloutbox", "status"},
		others: []string{pgx, "modernc.org/sqlite"},
	},

	"internal/...": {module: []string{"internal/..."}, others: []string{
		sarama, pgx, "github.com/twmb/franz-go", "github.com/ory/dockertest/v3", "github.com/fergusstrange/embedded-postgres",
		"go.uber.org/goleak",
	}},
	"examples/...": {module: []string{all}, others: []string{all}},
}

// never may be imported by code outside the examples, whatever the table says: a library leaves the choice of the SDK
// to the program.
var never = []string{"go.opentelemetry.io/otel/sdk", "go.opentelemetry.io/otel/exporters",
	"go.opentelemetry.io/contrib"}

// withoutSarama are the files of consumer that its users read and write against, and those that decide: Kafka's client
// has no place in them.
var withoutSarama = []string{
	"consumer/message.go", "consumer/handler.go", "consumer/errors.go", "consumer/codec.go", "consumer/eventid.go",
	"consumer/eventid_json.go", "consumer/eventid_cloudevents.go",
	"consumer/chain.go", "consumer/window.go", "consumer/queue.go", "consumer/status.go", "consumer/statusjson.go",
	"consumer/replay_rate.go",
}

// violations reads every Go file of the module that is no test, for whatever platform it is, and answers with a line
// for each import that is not allowed.
func violations(module fs.FS, name string) (found []string, err error) {
	files, err := sources(module)
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if pkg := path.Dir(file); !known(pkg) {
			found = append(found, fmt.Sprintf("package %s is not in the table: say there what it may import", pkg))
			continue
		}
		imports, err := importsOf(module, file)
		if err != nil {
			return nil, err
		}
		for _, imported := range imports {
			if reason := forbidden(file, imported, name); reason != "" {
				found = append(found, fmt.Sprintf("%s imports %s: %s", file, imported, reason))
			}
		}
	}
	return slices.Compact(found), nil
}

func known(pkg string) bool {
	_, ok := ruleFor(pkg)
	return ok
}

// forbidden says why the file must not import this path; "" means that it may.
func forbidden(file, imported, module string) string {
	pkg := path.Dir(file)
	rule, _ := ruleFor(pkg)
	example := within(pkg, "examples")
	switch {
	case within(imported, "testing"):
		return onlyIf(strings.HasSuffix(pkg, "test"), "only packages whose name ends with test may")
	case within(imported, module):
		return onlyIf(matches(rule.module, strings.TrimPrefix(imported, module+"/")),
			"the arrow points the other way, or there is none")
	case !strings.Contains(strings.Split(imported, "/")[0], "."):
		return "" // the standard library
	case !example && anyWithin(imported, never):
		return "only examples may choose an SDK"
	case imported == sarama && slices.Contains(withoutSarama, file):
		return "this file is for those who know nothing of Kafka's client"
	}
	return onlyIf(matches(rule.others, imported), "the package may not depend on this module")
}

func onlyIf(ok bool, otherwise string) string {
	if ok {
		return ""
	}
	return otherwise
}

// ruleFor finds the entry of the package itself, or else that of the nearest one above it which ends with /... .
func ruleFor(pkg string) (allowed, bool) {
	if rule, ok := table[pkg]; ok {
		return rule, true
	}
	for dir := pkg; dir != "."; dir = path.Dir(dir) {
		if rule, ok := table[dir+"/..."]; ok {
			return rule, true
		}
	}
	return allowed{}, false
}

// matches compares with entries of the table. Packages of this module are meant alone unless they end with /..., paths
// of other modules with all below them.
func matches(entries []string, imported string) bool {
	return slices.ContainsFunc(entries, func(entry string) bool {
		dir, deep := strings.CutSuffix(entry, "/...")
		return entry == all || entry == imported || (deep || isHost(entry)) && within(imported, dir)
	})
}

func isHost(entry string) bool { return strings.Contains(strings.Split(entry, "/")[0], ".") }

func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

func anyWithin(p string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(dir string) bool { return within(p, dir) })
}

const module = "github.com/einmal-go/einmal"

func TestArrows(t *testing.T) {
	t.Parallel()
	root := os.DirFS("../..")
	found, err := violations(root, module)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
	if files, _ := sources(root); len(files) < 20 {
		t.Errorf("only %d files were read", len(files))
	}
	for _, file := range withoutSarama {
		if _, err := fs.Stat(root, file); err != nil {
			t.Errorf("a file in withoutSarama is not there: %v", err)
		}
	}
}

func TestBrokenArrowsAreFound(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"offsets/x.go:fmt":                                                               "",
		"offsets/x.go:github.com/IBM/sarama":                                             "may not depend on this module",
		"dedupstore/x.go:github.com/jackc/pgx/v5":                                        "may not depend on this module",
		"dedupstore/x.go:github.com/einmal-go/einmal/consumer":                           "points the other way",
		"dedupstore/pgxstore/x.go:github.com/jackc/pgx/v5/pgxpool":                       "",
		"dedupstore/pgxstore/x.go:github.com/jackc/pgx/v50":                              "may not depend on this module",
		"dedupstore/memstore/x.go:testing":                                               "name ends with test",
		"dedupstore/storetest/x.go:testing":                                              "",
		"consumer/x.go:github.com/IBM/sarama":                                            "",
		"consumer/x.go:go.opentelemetry.io/otel/metric":                                  "may not depend on this module",
		"consumer/consumermetrics/x.go:go.opentelemetry.io/otel/sdk/metric":              "choose an SDK",
		"consumer/consumermetrics/x.go:github.com/einmal-go/einmal/outbox":               "points the other way",
		"outbox/x.go:github.com/IBM/sarama":                                              "may not depend on this module",
		"outbox/x.go:github.com/einmal-go/einmal/outbox/relay":                           "points the other way",
		"outbox/x.go:go.opentelemetry.io/otel/trace":                                     "may not depend on this module",
		"outbox/pgxoutbox/x.go:github.com/einmal-go/einmal/outbox/relay":                 "points the other way",
		"outbox/relay/x.go:github.com/IBM/sarama":                                        "",
		"outbox/relay/x.go:github.com/jackc/pgx/v5":                                      "may not depend on this module",
		"idempotency/x.go:go.opentelemetry.io/otel/metric":                               "may not depend on this module",
		"consumer/message.go:github.com/IBM/sarama":                                      "nothing of Kafka's client",
		"consumer/x.go:github.com/einmal-go/einmal/middleware":                           "points the other way",
		"consumer/x.go:github.com/einmal-go/einmal/internal/servers":                     "points the other way",
		"deadletter/x.go:github.com/jackc/pgx/v5":                                        "may not depend on this module",
		"consumer/x.go:github.com/einmal-go/einmal/deadletter":                           "points the other way",
		"consumer/x.go:testing":                                                          "name ends with test",
		"middleware/x.go:github.com/IBM/sarama":                                          "may not depend on this module",
		"middleware/x.go:github.com/einmal-go/einmal/dedupstore/pgxstore":                "points the other way",
		"middleware/x.go:go.opentelemetry.io/otel/trace":                                 "",
		"middleware/x.go:go.opentelemetry.io/otel/sdk/trace":                             "choose an SDK",
		"internal/servers/x.go:github.com/einmal-go/einmal/consumer":                     "points the other way",
		"internal/servers/serverstest/x.go:github.com/einmal-go/einmal/internal/servers": "",
		"examples/billing/x.go:go.opentelemetry.io/otel/sdk/trace":                       "",
		"examples/billing/x.go:github.com/einmal-go/einmal/internal/servers":             "",
		"newcomer/x.go:fmt":                                                              "not in the table",
		"offsets/x_test.go:pgregory.net/rapid":                                           "", // tests import what they like
		"offsets/x_windows.go:github.com/IBM/sarama":                                     "may not depend on this module",
		"offsets/testdata/x.go:github.com/IBM/sarama":                                    "",
	} {
		file, imported, _ := strings.Cut(source, ":")
		found, err := violations(fstest.MapFS{file: {Data: []byte("package x\n\nimport _ \"" + imported + "\"\n")}}, module)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(found, "\n"); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", source, got, want)
		}
	}
}

func TestNestedModulesAreOnTheirOwn(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{
		"benchmarks/go.mod": {},
		"benchmarks/x.go":   {Data: []byte("package x\n\nimport _ \"example.com/anything\"\n")},
	}
	if found, err := violations(tree, module); err != nil || len(found) > 0 {
		t.Errorf("violations = %q, %v", found, err)
	}
}
