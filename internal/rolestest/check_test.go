package rolestest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/internal/rolestest"
	"github.com/einmal-go/einmal/schema"
)

// The privileges of the page are those that check asks for: with all of them it asks for none, and without any one for
// that one.
func TestCheckAsksForNoMore(t *testing.T) {
	t.Parallel()
	grants := rolestest.Grants(t)
	for _, purpose := range schema.Purposes() {
		t.Run(string(purpose), func(t *testing.T) {
			t.Parallel()
			admin := tables(t)
			role := rolestest.New(t, admin, string(purpose))
			pool := role.Pool(t)
			if missing := missing(t, pool, purpose); len(missing) > 0 {
				t.Errorf("with all that the page says it lacks %q", missing)
			}
			tried := 0
			for _, grant := range grants[string(purpose)] {
				privileges, tables, ok := parts(grant)
				if !ok {
					continue // of the schema
				}
				for _, table := range tables {
					for _, privilege := range privileges {
						tried++
						target := fmt.Sprintf("%s on %s", privilege, table)
						execute(t, admin, "revoke "+target+" from "+pgx.Identifier{role.Name}.Sanitize())
						if got := missing(t, pool, purpose); !slices.Equal(got, []string{target}) {
							t.Errorf("without %s it lacks %q", target, got)
						}
						execute(t, admin, "grant "+target+" to "+pgx.Identifier{role.Name}.Sanitize())
					}
				}
			}
			if tried == 0 {
				t.Error("no privilege was tried")
			}
		})
	}
}

// parts are the privileges and the tables of a grant.
func parts(grant string) (privileges, tables []string, ok bool) {
	grant, _, _ = strings.Cut(strings.TrimPrefix(grant, "grant "), " to ")
	what, on, _ := strings.Cut(grant, " on ")
	return strings.Split(what, ", "), strings.Split(on, ", "), !strings.HasPrefix(on, "schema ")
}

// missing are the privileges that check asks for.
func missing(t *testing.T, pool *pgxpool.Pool, purpose schema.Purpose) (list []string) {
	t.Helper()
	found, err := schema.Postgres.Check(t.Context(), func(ctx context.Context, sql string, args ...any) (text string,
		err error) {
		err = pool.QueryRow(ctx, sql, args...).Scan(&text)
		return text, err
	}, &schema.Config{For: []schema.Purpose{purpose}})
	must(t, err)
	for _, f := range found {
		if privilege, ok := strings.CutPrefix(f.About, "privilege "); ok {
			list = append(list, privilege+" on "+f.Table)
		} else if f.Level == schema.LevelError {
			t.Errorf("%s: %s", f.Table, f.Says)
		}
	}
	return list
}
