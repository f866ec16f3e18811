package docs

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// stated are numbers that documents state, with the constants that make them true.
var stated = []struct{ dir, constant, value, document, says string }{
	{"consumer", "defaultAhead", "20_000_000", "CHANGELOG.md", "20,000,000 by default"},
	{"internal/kafkaconf", "MaxDecompressedBatch", "100 << 20", "docs/security.md", "more than 100 MiB"},
	{"dedupstore/internal/record", "defaultIdleTimeout", "60 * time.Second", "docs/failure-matrix.md",
		"(IdleTimeout, 60 s)"},
	{"middleware", "defaultDeadPerSecond", "10", "docs/failures.md", "10 a second for a topic and process"},
	{"outbox", "DefaultMaxBytes", "1_000_000", "docs/outbox.md", "more than 1,000,000 bytes"},
	{"janitor", "DefaultMargin", "2 * time.Hour", "docs/retention.md", "| 2 h |"},
	{"janitor", "DefaultBatch", "1000", "docs/retention.md", "batches of 1,000"},
	{"janitor", "DefaultPause", "100 * time.Millisecond", "docs/retention.md", "about 100 ms"},
	{"janitor", "DefaultPartitionsAhead", "4", "docs/retention.md", "four days ahead"},
	{"idempotency", "DefaultKeep", "24 * time.Hour", "docs/http-rules.md", "(a day)"},
	{"idempotency", "maxUnpacked", "16 << 20", "docs/http-rules.md", "up to 16 MiB"},
	{"internal/redact", "leastPiece", "12", "docs/security.md", "fewer than 12 bytes"},
	{"middleware", "maxErrorText", "1024", "CHANGELOG.md", "1,024 bytes"},
	{"consumer", "DefaultDrainTimeout", "8 * time.Second", "docs/status.md", "| 8 + 12 s |"},
	{"consumer", "cancelGrace", "time.Second", "docs/status.md", "1 s for handlers to roll back"},
	{"consumer", "commitTimeout", "2 * time.Second", "docs/status.md", "2 s for the last commit"},
	{"consumer", "stopGrace", "3 * time.Second", "docs/status.md", "3 s each for the coordinator"},
	{"consumer", "closeTimeout", "3 * time.Second", "docs/status.md", "for leaving, and for the connections"},
	{"consumer", "sessionTimeout", "20 * time.Second", "docs/status.md", "session time-out (20 s)"},
	{"consumer", "sessionTimeout", "20 * time.Second", "docs/cloud.md", "session time-out is 20 s"},
	{"consumer", "DefaultStartTimeout", "30 * time.Second", "docs/status.md", "`StartTimeout` (30 s)"},
	{"outbox/relay", "DefaultPublishTimeout", "5 * time.Second", "docs/status.md", "| 5 + 10 s;"},
	{"outbox/relay", "sqlTimeout", "10 * time.Second", "docs/status.md", "10 s for the database"},
	{"consumer", "DefaultWorkers", "16", "docs/sizing.md", "it is 16 unless you say otherwise"},
	{"consumer", "defaultBytes", "256 << 20", "docs/sizing.md", "256 MiB unless you say otherwise"},
	{"consumer", "defaultPartitionBytes", "16 << 20", "docs/sizing.md", "16 MiB for each partition"},
	{"outbox/relay", "defaultBatchBytes", "8 << 20", "docs/sizing.md", "up to 8 MiB"},
	{"outbox/relay", "DefaultWorkers", "2", "docs/sizing.md", "2 + 2 by default"},
	{"idempotency", "DefaultBeginTimeout", "5 * time.Second", "docs/cloud.md", "`BeginTimeout`, 5 s"},
	{"consumer", "keepTryingMax", "time.Minute", "docs/failures.md", "twice as long each time up to 1"},
	{"deadletter", "MaxText", "2048", "docs/failures.md", "the last one is at most 2 KiB"},
	{"middleware", "defaultCrashLimit", "3", "docs/failures.md", "At the limit (3)"},
	{"deadletter/internal/deadsql", "defaultMaxBytes", "32 << 20", "docs/failures.md", "32 MiB by default"},
	{"consumer", "minDelay", "10 * time.Millisecond", "docs/kafka-rules.md", "10 ms at least and an hour at most"},
	{"consumer", "maxDelay", "time.Hour", "docs/kafka-rules.md", "10 ms at least and an hour at most"},
	{"consumer", "maxCarried", "24", "docs/failures.md", "the oldest 24"},
	{"dedupstore/internal/record", "defaultCommitTimeout", "5 * time.Second", "docs/cloud.md", "`CommitTimeout`, 5 s"},
	{"dedupstore/internal/record", "defaultCommitTimeout", "5 * time.Second", "docs/failure-matrix.md", "after CommitTimeout (5 s)"},
	{"dedupstore/internal/record", "defaultLockTimeout", "5 * time.Second", "docs/failure-matrix.md", "longer than LockTimeout (5 s)"},
	{"dedupstore/internal/record", "defaultIdleTimeout", "60 * time.Second", "docs/calls.md", "half of the 60 s"},
	{"dedupstore/internal/gather", "defaultSpan", "20 * time.Millisecond", "docs/groups.md", "have used 20 ms it commits"},
	{"idempotency", "defaultCallAttempts", "5", "docs/calls.md", "| bounds | 5 attempts, 30 s in all, 10 s for an attempt"},
	{"idempotency", "defaultCallBudget", "30 * time.Second", "docs/calls.md", "30 s in all"},
	{"idempotency", "defaultCallAttemptTimeout", "10 * time.Second", "docs/calls.md", "10 s for an attempt and its answer"},
	{"idempotency", "defaultCallMinBackoff", "200 * time.Millisecond", "docs/calls.md", "from 0 to 200 ms·2ⁿ⁻¹, at most 5 s"},
	{"idempotency", "defaultCallMaxBackoff", "5 * time.Second", "docs/calls.md", "at most 5 s"},
	{"idempotency", "defaultCallMaxBody", "1 << 20", "docs/calls.md", "without `GetBody` up to 1 MiB"},
	{"idempotency", "defaultCallMaxAnswer", "1 << 20", "docs/calls.md", "answers up to 1 MiB"},
	{"outbox/relay", "defaultOutcomeTimeout", "30 * time.Second", "docs/outbox.md", "at most `OutcomeTimeout` (30 s)"},
	{"outbox/relay", "DefaultPublishTimeout", "5 * time.Second", "docs/outbox.md", "at most `PublishTimeout` + 10 s (15 s) later"},
	{"outbox/relay", "defaultLeaseTTL", "45 * time.Second", "docs/outbox.md", "(`LeaseTTL`, 45 s)"},
	{"outbox/relay", "defaultKeep", "time.Hour", "docs/outbox.md", "`PUBLISHED` for `Keep` (1 h)"},
	{"outbox/relay", "defaultMaxClaims", "20", "docs/outbox.md", "`BLOCKED` after 20"},
	{"outbox/relay", "defaultPollInterval", "50 * time.Millisecond", "docs/outbox.md", "50 ms after something was found"},
	{"outbox/relay", "defaultIdleInterval", "500 * time.Millisecond", "docs/outbox.md", "up to 500 ms when nothing comes"},
	{"consumer", "DefaultProcessingLimit", "5 * time.Minute", "docs/configuration.md", "`Topic.ProcessingLimit` (5 minutes)"},
	{"console", "defaultTimeout", "3 * time.Second", "docs/console.md", "`Config.Timeout` (3 s)"},
	{"consumer", "keepTryingBase", "time.Second", "docs/failures.md", "It runs again 1 s after its first attempt"},
	{"consumer", "keepTryingBase", "time.Second", "docs/failures.md", "the first such pause is 16 s"},
	{"middleware", "defaultAttempts", "5", "docs/failures.md", "behind the five of the chain above"},
	{"middleware", "defaultRetryMax", "30 * time.Second", "docs/failure-matrix.md", "with Retry drawn from up to 30 s"},
	{"consumer", "keepTryingMax", "time.Minute", "docs/failure-matrix.md", "without it up to 1 min"},
	{"consumer", "missingPoll", "time.Second", "docs/failure-matrix.md", "asked for again after 1 s"},
	{"consumer", "stuckGrace", "30 * time.Second", "docs/alerts.md", "OnStuck follows 30 s later"},
	{"consumer", "rejoinMax", "5 * time.Second", "docs/alerts.md", "pauses grow to 5 s"},
	{"consumer", "patience", "16 * time.Second", "docs/alerts.md", "found within 16 s"},
	{"consumer", "shortSession", "10 * time.Second", "docs/status.md", "ended within 10 s"},
	{"consumer", "maxFailures", "20", "docs/status.md", "the first 20 of each partition"},
	{"consumer", "defaultReplayRate", "100", "docs/status.md", "100 messages a second by default"},
	{"consumer", "defaultReplayAttempts", "5", "docs/status.md", "(`Attempts`, 5)"},
	{"consumer", "replayPartitions", "4", "docs/status.md", "at most four partitions"},
	{"consumer", "carryProgress", "10 * time.Second", "docs/failures.md", "up to 10 s too old"},
	{"cmd/einmal", "newestRecords", "20_000", "docs/status.md", "the newest 20,000 records"},
	{"cmd/einmal", "lookUpBatch", "1000", "docs/status.md", "a thousand at a time"},
	{"status", "defaultTimeout", "5 * time.Second", "docs/status.md", "`Config.Timeout` (5 s for all)"},
	{"audit", "pageRows", "20_000", "docs/audit.md", "pages of 20,000"},
	{"audit", "sortBytes", "48 << 20", "docs/audit.md", "48 MiB of it"},
	{"audit", "leeway", "10 * time.Minute", "docs/audit.md", "may take ten minutes"},
	{"outbox", "MaxHeaders", "1000", "docs/outbox.md", "more than 1,000 headers"},
	{"outbox", "MaxCount", "10_000", "docs/outbox.md", "exact up to 10,000"},
	{"outbox/internal/outboxsql", "Buckets", "64", "docs/outbox.md", "divided into 64 buckets"},
	{"outbox/relay", "topicGrace", "5 * time.Second", "docs/outbox.md", "does not exist (for 5 s)"},
	{"outbox/relay", "mostParked", "10 * time.Second", "docs/outbox.md", "may wait in such a bucket for 10 s"},
	{"outbox/relay", "longParked", "time.Minute", "docs/outbox.md", "for a minute where several 100,000 rows"},
	{"codec/schemaregistry", "defaultRetryAfter", "time.Second", "docs/codecs.md", "another attempt after 1 s"},
	{"codec/schemaregistry", "defaultUnknownFor", "time.Minute", "docs/codecs.md", "for 1 minute (`Config.UnknownFor`)"},
	{"codec/schemaregistry", "defaultTimeout", "2 * time.Second", "docs/codecs.md", "at most 2 s (`Config.Timeout`"},
	{"console", "defaultEvery", "10 * time.Second", "docs/console.md", "every 10 s (`Config.Every`)"},
	{"console", "maxLines", "1_000", "docs/console.md", "at most 1,000 lines"},
	{"console", "maxPoints", "360", "docs/console.md", "360 points"},
	{"console", "perPage", "100", "docs/console.md", "100 on a page"},
}

// TestStatedNumbers checks that they are what the code has.
func TestStatedNumbers(t *testing.T) {
	t.Parallel()
	for _, s := range stated {
		if got := constantOf(t, s.dir, s.constant); got != s.value {
			t.Errorf("%s.%s is %s, and %s says %q: change both, and this table", s.dir, s.constant, got, s.document, s.says)
		}
		if text, err := os.ReadFile(filepath.Join(root, s.document)); err != nil || !strings.Contains(string(text), s.says) {
			t.Errorf("%s does not say %q any more: %v", s.document, s.says, err)
		}
	}
}

// constantOf is how a constant is written in the code.
func constantOf(t *testing.T, dir, name string) (value string) {
	t.Helper()
	for _, file := range sourcesOf(t, dir) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, ident := range spec.Names {
				if ident.Name == name && i < len(spec.Values) {
					var b bytes.Buffer
					if err := format.Node(&b, token.NewFileSet(), spec.Values[i]); err != nil {
						t.Fatal(err)
					}
					value = b.String()
				}
			}
			return true
		})
	}
	return value
}

func sourcesOf(t *testing.T, dir string) (files []*ast.File) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	return files
}

var (
	commandLine = regexp.MustCompile("(?m)(?:^|[`|\\s(])einmal ((?:schema|dead|outbox|replay|status|audit|erase|version)\\b[^`|>\n]*)")
	commandFlag = regexp.MustCompile(`(?:^|\s)(-[a-z][a-z-]*)`)
)

// TestCommandsInDocuments checks that commands and flags of einmal that documents name are there.
func TestCommandsInDocuments(t *testing.T) {
	t.Parallel()
	cli := filepath.Join(t.TempDir(), "einmal")
	if out, err := exec.Command("go", "build", "-o", cli, root+"/cmd/einmal").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	help := map[string]string{}
	helpOf := func(command string) string {
		if _, known := help[command]; !known {
			out, err := exec.Command(cli, append(strings.Fields(command), "-h")...).CombinedOutput()
			if err != nil || !strings.Contains(string(out), "\nflags:") {
				out = nil
			}
			help[command] = string(out)
		}
		return help[command]
	}
	found := 0
	for path, text := range documents(t) {
		if filepath.Base(path) == "CHANGELOG.md" { // it tells what was
			continue
		}
		for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			command := words[0]
			if slices.Contains([]string{"schema", "dead", "outbox", "replay"}, command) {
				if len(words) < 2 || strings.HasPrefix(words[1], "-") {
					continue // the group
				}
				command += " " + strings.Trim(words[1], ".,:;)")
			}
			if command == "audit" && len(words) > 1 && words[1] == "outbox" {
				command += " outbox"
			}
			usage := helpOf(command)
			if usage == "" {
				if m[0][0] == '`' || strings.HasPrefix(m[0], "\neinmal") {
					t.Errorf("%s: there is no command %q", path, command)
				}
				continue
			}
			found++
			for _, flag := range commandFlag.FindAllStringSubmatch(m[1], -1) {
				if !strings.Contains(usage, "\n  "+flag[1]+" ") && !strings.Contains(usage, "\n  "+flag[1]+"\n") &&
					!strings.Contains(usage, "\n  "+flag[1]+"\t") {
					t.Errorf("%s: einmal %s has no flag %s: %q", path, command, flag[1], m[1])
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("only %d commands were found", found)
	}
}

var variable = regexp.MustCompile(`\bEINMAL_[A-Z0-9_]+\b`)

// TestVariablesInDocuments checks that something reads the variables of the environment that documents name.
func TestVariablesInDocuments(t *testing.T) {
	t.Parallel()
	var code strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if filepath.Ext(path) != ".go" && !strings.Contains(path, "/.ci/") {
			return nil
		}
		text, err := os.ReadFile(path)
		code.Write(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range documents(t) {
		for _, name := range variable.FindAllString(text, -1) {
			if !strings.Contains(code.String(), name) {
				t.Errorf("%s: nothing knows %s", path, name)
			}
		}
	}
}

// TestBenchmarksInDocuments compares the list of benchmarks with the program, and looks for others in documents.
func TestBenchmarksInDocuments(t *testing.T) {
	t.Parallel()
	main, err := os.ReadFile(root + "/benchmarks/cmd/bench/main.go")
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, m := range regexp.MustCompile(`(?m)^\t"(\w+)":`).FindAllStringSubmatch(string(main), -1) {
		known = append(known, m[1])
	}
	if len(known) < 8 {
		t.Fatalf("only %q were found", known)
	}
	docs := documents(t)
	for _, name := range known {
		if !strings.Contains(docs[filepath.Join(root, "benchmarks/README.md")], "bench "+name) {
			t.Errorf("benchmarks/README.md does not tell of bench %s", name)
		}
		if !strings.Contains(string(main), "bench "+name+" ") {
			t.Errorf("the usage of bench does not tell of %s", name)
		}
	}
	for path, text := range docs {
		for _, m := range regexp.MustCompile("(?:cmd/bench|`bench) ([a-z]+)").FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s: there is no benchmark %s", path, m[1])
			}
		}
	}
}

// TestMapIsTheTree checks that each directory of the map in CONTRIBUTING.md is there, and stands in it once.
func TestMapIsTheTree(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "## The map\n\n```\n")
	tree, _, _ := strings.Cut(rest, "```")
	var above []string // directories by their indentation
	seen := map[string]bool{}
	for line := range strings.Lines(tree) {
		names := strings.TrimLeft(line, " ")
		depth := (len(line) - len(names)) / 2
		for word := range strings.FieldsSeq(names) {
			if !strings.HasSuffix(word, "/") {
				break
			}
			above = append(above[:min(depth, len(above))], strings.TrimSuffix(word, "/"))
			dir := strings.Join(above, "/")
			if seen[dir] {
				t.Errorf("the map has %s twice", dir)
			}
			seen[dir] = true
			if info, err := os.Stat(filepath.Join(root, dir)); err != nil || !info.IsDir() {
				t.Errorf("the map has %s, which is not there", dir)
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("only %d directories were found", len(seen))
	}
}

// TestProblemsAreDescribed compares the problems that a Handler answers with docs/http-rules.md, which their types lead
// to.
func TestProblemsAreDescribed(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/http-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile(root + "/idempotency/problem.go")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Problems\n")
	var described, known []string
	for _, m := range regexp.MustCompile(`(?m)^### ([a-z-]+)$`).FindAllStringSubmatch(section, -1) {
		described = append(described, m[1])
	}
	for _, m := range regexp.MustCompile(`Problem\w+\s*=\s*[^\n]*?([a-z-]+)"`).FindAllStringSubmatch(string(code), -1) {
		known = append(known, m[1])
	}
	slices.Sort(described)
	slices.Sort(known)
	if !slices.Equal(described, known) || len(known) < 8 {
		t.Errorf("described are %q, the code has %q", described, known)
	}
}

// exported is a name of a package of ours, in code within a sentence: consumer.Config, relay.Config.Keep.
var exported = regexp.MustCompile("`([a-z]+)\\.([A-Z]\\w*)(?:\\.([A-Z]\\w*))?(?:\\(|`|\\{)")

// TestNamesOfTheCodeInDocuments checks that names of our packages that documents use are there.
func TestNamesOfTheCodeInDocuments(t *testing.T) {
	t.Parallel()
	ours := map[string]map[string]bool{} // by the package's name
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range sourcesOf(t, rel) {
			names := ours[file.Name.Name]
			if names == nil {
				names = map[string]bool{}
				ours[file.Name.Name] = names
			}
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.FuncDecl:
					names[n.Name.Name] = true
				case *ast.TypeSpec:
					names[n.Name.Name] = true
				case *ast.ValueSpec:
					for _, ident := range n.Names {
						names[ident.Name] = true
					}
				case *ast.Field:
					for _, ident := range n.Names {
						names[ident.Name] = true
					}
				}
				return true
			})
		}
	}
	found := 0
	for path, text := range documents(t) {
		if filepath.Base(path) == "CHANGELOG.md" {
			continue
		}
		for _, m := range exported.FindAllStringSubmatch(text, -1) {
			names := ours[m[1]]
			if names == nil || m[1] == "main" || strings.HasPrefix(m[2], "Test") || strings.HasPrefix(m[2], "Fuzz") ||
				strings.HasPrefix(m[2], "Example") {
				continue
			}
			found++
			if !names[m[2]] || m[3] != "" && !names[m[3]] {
				t.Errorf("%s: there is no %s", path, strings.Trim(m[0], "`({"))
			}
		}
	}
	if found < 100 {
		t.Errorf("only %d names were found", found)
	}
}

// TestStatusFieldsInDocuments checks that docs/status.md has each field of the JSON of a Consumer and of a Relay.
func TestStatusFieldsInDocuments(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(root + "/docs/status.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"consumer/statusjson.go", "outbox/relay/statusjson.go"} {
		code, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		fields := regexp.MustCompile("`json:\"([a-z_]+)").FindAllStringSubmatch(string(code), -1)
		if len(fields) < 15 {
			t.Errorf("%s: only %d fields", path, len(fields))
		}
		for _, m := range fields {
			if !regexp.MustCompile(`\b` + m[1] + `\b`).Match(text) {
				t.Errorf("docs/status.md does not tell of %s of %s", m[1], path)
			}
		}
	}
}
