package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// ErrNoPgbouncer is returned where the program pgbouncer is not installed.
var ErrNoPgbouncer = errors.New("pgbouncer is not installed: install the package pgbouncer")

// Pgbouncer starts a pooler in transaction mode in front of the database, and answers with it as another Database. It
// ends with Close, or with this process. A schema cannot be chosen by its URL: the pooler takes no search_path.
func Pgbouncer(ctx context.Context, db *Database) (*Database, error) {
	program, err := findPgbouncer()
	if err != nil {
		return nil, err
	}
	server, err := pgx.ParseConfig(db.URL)
	if err != nil {
		return nil, err
	}
	cred, err := otherThanRoot() // pgbouncer refuses to run as root
	if err != nil {
		return nil, err
	}
	dir, err := ownDir("einmal-pgbouncer-")
	if err != nil {
		return nil, err
	}
	b := &bouncer{program, dir, server, cred}
	pooler, err := onFreePort(ctx, func(port string) (*Database, error) { return b.listen(ctx, port) })
	if err != nil {
		return nil, joinClose(err, b.remove)
	}
	return pooler, nil
}

// findPgbouncer looks on PATH, and where Debian has it, which is not on every user's PATH.
func findPgbouncer() (string, error) {
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if program, err := exec.LookPath(name); err == nil {
			return program, nil
		}
	}
	return "", ErrNoPgbouncer
}

type bouncer struct {
	program, dir string
	server       *pgx.ConnConfig
	cred         *syscall.Credential
}

func (b *bouncer) remove() error { return os.RemoveAll(b.dir) }

func (b *bouncer) listen(ctx context.Context, port string) (*Database, error) {
	ini := filepath.Join(b.dir, "pgbouncer.ini")
	users := filepath.Join(b.dir, "users")
	if err := errors.Join(
		os.WriteFile(users, []byte(quoted(b.server.User)+" "+quoted(b.server.Password)+"\n"), 0o600),
		os.WriteFile(ini, []byte(b.settings(port, users)), 0o600),
	); err != nil {
		return nil, err
	}
	if b.cred != nil {
		for _, file := range []string{b.dir, ini, users} {
			if err := os.Chown(file, int(b.cred.Uid), int(b.cred.Gid)); err != nil {
				return nil, err
			}
		}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), b.program, ini)
	cmd.Dir = b.dir
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: b.cred}
	p, err := start(cmd, syscall.SIGTERM)
	if err != nil {
		return nil, err
	}
	db := &Database{
		URL:    postgresURL(b.server.User, b.server.Password, port, b.server.Database),
		Origin: "in transaction mode, from " + b.program,
		close: func() error {
			p.stop(syscall.SIGTERM)
			return b.remove()
		},
	}
	if err := until(ctx, p.done, p.ended, db.ping); err != nil {
		p.stop(syscall.SIGTERM)
		return nil, fmt.Errorf("pgbouncer: %w", err)
	}
	return db, nil
}

// settings are those of a pooler for tests, which hold many transactions open at once. A server without a password,
// such as one in a container of the developer's, asks its clients for none.
func (b *bouncer) settings(port, users string) string {
	auth := "scram-sha-256"
	if b.server.Password == "" {
		auth = "trust"
	}
	return strings.Join([]string{
		"[databases]",
		fmt.Sprintf("* = host=%s port=%d", b.server.Host, b.server.Port),
		"[pgbouncer]",
		"listen_addr = 127.0.0.1",
		"listen_port = " + port,
		"unix_socket_dir =",
		"auth_type = " + auth,
		"auth_file = " + users,
		"pool_mode = transaction",
		"max_client_conn = 1000",
		"default_pool_size = 80",
		"server_tls_sslmode = prefer",
		"",
	}, "\n")
}

// quoted is a word of pgbouncer's file of users.
func quoted(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
