// Package rolestest makes roles of PostgreSQL that have exactly the privileges of docs/security.md, for tests of
// whoever works with them. Its own tests run every part of einmal as its role.
package rolestest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Role is a role that may log in.
type Role struct {
	Name string
	URL  string // of the database, as the role, with the schema as search_path
}

var (
	sqlBlock = regexp.MustCompile("(?s)```sql\n(.*?)```")
	section  = regexp.MustCompile(`(?m)^-- (\w+):`)
)

// Grants returns the statements of docs/security.md by the purpose that they are for.
func Grants(t testing.TB) map[string][]string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0) //nolint:dogsled // its form
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "../../docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	grants := map[string][]string{}
	for _, block := range sqlBlock.FindAllStringSubmatch(string(text), -1) {
		heads := section.FindAllStringSubmatchIndex(block[1], -1)
		for i, head := range heads {
			end := len(block[1])
			if i+1 < len(heads) {
				end = heads[i+1][0]
			}
			for line := range strings.Lines(block[1][head[1]:end]) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "grant ") {
					purpose := block[1][head[2]:head[3]]
					grants[purpose] = append(grants[purpose], line)
				}
			}
		}
	}
	if len(grants) < 5 {
		t.Fatalf("docs/security.md has grants for %d purposes only", len(grants))
	}
	return grants
}

// New makes a role with the privileges for purpose, on the tables of the schema that admin works in, and with those of
// more, in which %s is the role. It is dropped when the test ends.
func New(t testing.TB, admin *pgxpool.Pool, purpose string, more ...string) *Role {
	t.Helper()
	return NewOf(t, admin, []string{purpose}, more...)
}

// NewOf is New for a role that has several purposes.
func NewOf(t testing.TB, admin *pgxpool.Pool, purposes []string, more ...string) *Role {
	t.Helper()
	name, password := "einmal_"+purposes[0]+"_"+strings.ToLower(rand.Text()), rand.Text()
	ident := pgx.Identifier{name}.Sanitize()
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var schema string
	if err := admin.QueryRow(t.Context(), "select quote_ident(current_schema())").Scan(&schema); err != nil {
		t.Fatal(err)
	}
	exec(fmt.Sprintf("create role %s login password '%s'", ident, password))
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "select pg_terminate_backend(pid) from pg_stat_activity where usename = $1",
			name)
		exec("drop owned by " + ident + "; drop role " + ident)
	})
	grants := Grants(t)
	for _, purpose := range purposes {
		for _, grant := range grants[purpose] {
			grant = strings.ReplaceAll(grant, "einmal_"+purpose, ident)
			exec(strings.ReplaceAll(grant, "schema billing", "schema "+schema))
		}
	}
	for _, sql := range more {
		exec(fmt.Sprintf(sql, ident))
	}
	u, err := url.Parse(admin.Config().ConnString())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return &Role{name, u.String()}
}

// Pool opens connections of the role. They are closed when the test ends.
func (r *Role) Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), r.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}
