package servers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
)

const (
	testVariable  = "EINMAL_TEST_SOURCE_A"
	otherVariable = "EINMAL_TEST_SOURCE_B"
)

// serves is a source that has a server named like itself; fails is one that has none.
func serves(name, variable string) source[string] {
	return source[string]{name, variable, func() (string, error) { return name, nil }}
}

func fails(name, variable string) source[string] {
	return source[string]{name, variable, func() (string, error) { return "", errors.New("none today") }}
}

func TestTheFirstSourceThatHasAServerServes(t *testing.T) {
	t.Parallel()
	got, reasons, err := first(context.Background(), []source[string]{fails("a", ""), serves("b", ""), serves("c", "")})
	if err != nil || got != "b" {
		t.Errorf("first = %q, %v; want b", got, err)
	}
	if want := []string{"a: none today"}; !slices.Equal(reasons, want) {
		t.Errorf("reasons = %q, want %q", reasons, want)
	}
}

func TestNoSourceHasAServer(t *testing.T) {
	t.Parallel()
	_, reasons, err := first(context.Background(), []source[string]{fails("a", ""), fails("b", "")})
	if !errors.Is(err, errNone) || len(reasons) != 2 {
		t.Errorf("first: %v, reasons %q; want errNone and two reasons", err, reasons)
	}
}

func TestAVariableThatIsSetIsMeant(t *testing.T) {
	t.Setenv(testVariable, "set")
	sources := []source[string]{serves("a", ""), serves("b", otherVariable), fails("c", testVariable), serves("d", "")}
	if got, _, err := first(context.Background(), sources); !errors.Is(err, errNone) {
		t.Errorf("first = %q, %v; the source that is meant has no server", got, err)
	}
	t.Setenv(otherVariable, "set")
	if got, _, err := first(context.Background(), sources); err != nil || got != "b" {
		t.Errorf("first = %q, %v; want b, which is meant as well", got, err)
	}
}

func TestTheSearchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := first(ctx, []source[string]{serves("a", "")}); !errors.Is(err, context.Canceled) {
		t.Errorf("first: %v, want context.Canceled", err)
	}
}

func TestSearchPathInAnyForm(t *testing.T) {
	t.Parallel()
	for database, want := range map[string]string{
		"postgres://u:p%40ss@h:1/db":                                "postgres://u:p%40ss@h:1/db?search_path=t_x",
		"postgresql://h/db?sslmode=disable&search_path=old":         "postgresql://h/db?search_path=t_x&sslmode=disable",
		"postgres://h/db?options=-c%20statement_timeout%3D1%2B0":    "postgres://h/db?options=-c%20statement_timeout%3D1%2B0&search_path=t_x",
		"host=/var/run/postgresql dbname=db password='with blanks'": "host=/var/run/postgresql dbname=db password='with blanks' search_path=t_x",
	} {
		if got, err := withSearchPath(database, "t_x"); err != nil || got != want {
			t.Errorf("withSearchPath(%q)\n = %q, %v\nwant %q", database, got, err, want)
		}
	}
}

func TestAURLThatCannotBeParsedKeepsItsPassword(t *testing.T) {
	t.Parallel()
	_, err := withSearchPath("postgres://u:se%cret@h/db", "t_x")
	if err == nil || strings.Contains(err.Error(), "cret") {
		t.Errorf("err = %v; want one without the password", err)
	}
}

func TestSchemaNames(t *testing.T) {
	t.Parallel()
	for label, prefix := range map[string]string{
		"TestX/sub_Case-1": "t_testxsubcase1_",
		"":                 "t__",
		"ÄÖ\"; DROP":       "t_drop_",
		"a-name-that-is-longer-than-all-that-is-kept": "t_anamethatislongerthanall_",
	} {
		a, b := schemaName(label), schemaName(label)
		if !strings.HasPrefix(a, prefix) || len(a) != len(prefix)+8 || a == b {
			t.Errorf("schemaName(%q) = %q, %q; want unique names that begin with %q", label, a, b, prefix)
		}
	}
}

func TestVersionInPath(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]int{
		"/usr/lib/postgresql/9/bin": 9, "/usr/lib/postgresql/17/bin": 17, "/opt/homebrew/opt/postgresql@16/bin": 16,
		"/usr/local/pgsql/bin": 0,
	} {
		if got := versionIn(path); got != want {
			t.Errorf("versionIn(%q) = %d, want %d", path, got, want)
		}
	}
}

func TestImageAndTag(t *testing.T) {
	t.Parallel()
	for image, want := range map[string][2]string{
		"postgres:17-alpine":        {"postgres", "17-alpine"},
		"postgres":                  {"postgres", "latest"},
		"registry:5000/a/postgres":  {"registry:5000/a/postgres", "latest"},
		"registry:5000/postgres:17": {"registry:5000/postgres", "17"},
	} {
		if repository, tag := splitImage(image); [2]string{repository, tag} != want {
			t.Errorf("splitImage(%q) = %q, %q; want %q", image, repository, tag, want)
		}
	}
}

func TestClusterIDIsNoOption(t *testing.T) {
	t.Parallel()
	for range 1000 {
		if id := clusterID(); len(id) != 22 || strings.HasPrefix(id, "-") {
			t.Fatalf("clusterID() = %q; want 22 characters, the first no dash", id)
		}
	}
}
