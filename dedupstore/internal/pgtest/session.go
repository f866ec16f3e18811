package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// SessionSQL tells the settings of a session that a function may leave behind for the next one.
const SessionSQL = `select concat_ws(' ', session_user, current_user, current_setting('row_security'), current_setting('search_path'),
	current_setting('session_replication_role'), current_setting('TimeZone'), current_setting('statement_timeout'),
	current_setting('lock_timeout'), current_setting('synchronous_commit'))`

// Left are statements that change those.
func Left(role string) []string {
	return []string{
		"set session authorization " + role, "set role " + role, "set row_security = off", "set search_path to ''",
		"set session_replication_role = replica",
		"set time zone 'Pacific/Chatham'", "set statement_timeout = '1s'", "set lock_timeout = '1ms'",
		"set synchronous_commit = off",
		"select set_config('role', '" + role[1:len(role)-1] + "', false)", "set search_path to ''; set role " + role,
	}
}

// Role creates a role that may do nothing, and returns its name as it stands in SQL.
func (db *Database) Role() string {
	db.t.Helper()
	role := pgx.Identifier{"einmal " + rand.Text()}.Sanitize()
	db.Run("create role " + role)
	db.t.Cleanup(func() {
		if _, err := db.Exec(context.Background(), "drop owned by "+role+"; drop role "+role); err != nil {
			db.t.Error(err)
		}
	})
	return role
}

// SessionInAGroup checks that the functions of a group do not see what the ones before them have set by exec, and look
// tells. waiting is how many calls wait for a group.
func SessionInAGroup[Tx any](t *testing.T, once func(event string, fn func(context.Context, Tx) error) (ran bool,
	err error), waiting func() int, set string,
	exec func(sql string) func(context.Context, Tx) error, look func(into *string) func(context.Context, Tx) error,
) {
	t.Helper()
	var before string
	if _, err := once(set+"before", look(&before)); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	inside, release := make(chan struct{}), make(chan struct{})
	all.Go(func() { // while it runs, the others form a group
		_, err := once(set+"first", func(context.Context, Tx) error {
			close(inside)
			<-release
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	saw := make([]string, 6)
	for i := range saw {
		all.Go(func() {
			fn := look(&saw[i])
			if i%2 == 0 {
				fn = exec(set)
			}
			if ran, err := once(fmt.Sprint(set, i), fn); !ran || err != nil {
				t.Errorf("%s: Once() = %v, %v", set, ran, err)
			}
		})
	}
	Eventually(t, "the others wait", func() bool { return waiting() == len(saw) })
	close(release)
	all.Wait()
	for i, got := range saw {
		if i%2 == 1 && got != before {
			t.Errorf("beside %s: %q, want %q", set, got, before)
		}
	}
}
