package audit_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/einmal-go/einmal/audit"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// A hot standby, which can write nothing, is audited. What it has not replayed yet is waited for, and not reported.
func TestReplica(t *testing.T) {
	t.Parallel()
	primary := serverstest.Instance(t)
	replica := serverstest.Replica(t, primary, primary.Addr())
	for _, i := range []interface{ Start(context.Context) error }{primary, replica} {
		if err := i.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s := newServiceOn(t, serverstest.InProcess(t), schema.Postgres, primary.URL())
	s.finished(t)
	standby, err := sql.Open("pgx", replica.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer standby.Close()
	if _, err := standby.ExecContext(t.Context(), "create temporary table x (y int)"); err == nil {
		t.Fatal("the standby can be written")
	}
	await := func(what, question string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			var yes bool
			if err := standby.QueryRowContext(t.Context(), question).Scan(&yes); err == nil && yes {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("not within a minute: %s", what)
			}
		}
	}
	await("the standby has all charges", "select count(*) = 10 from charge")

	if _, err := standby.ExecContext(t.Context(), "select pg_wal_replay_pause()"); err != nil {
		t.Fatal(err)
	}
	await("the standby stands still", "select pg_get_wal_replay_pause_state() = 'paused'")
	s.produce(t, 0, "e10", "late")
	s.exec(t, "insert into processed_event (event_id, consumer_id) values ('e10', '"+s.group+"/"+s.topic+"')")
	s.exec(t, "insert into charge (event_id) values ('e10')")
	s.commit(t, 0, 6)
	type answer struct {
		*audit.Report
		error
	}
	answered := make(chan answer, 1)
	go func() {
		r, err := audit.Run(t.Context(), audit.Kafka{Brokers: s.Addrs}, standby, s.cfg)
		answered <- answer{r, err}
	}()
	select {
	case a := <-answered:
		t.Fatalf("it has an answer, and the standby has not replayed: %+v, %v", a.Report, a.error)
	case <-time.After(3 * time.Second):
	}
	if _, err := standby.ExecContext(t.Context(), "select pg_wal_replay_resume()"); err != nil {
		t.Fatal(err)
	}
	s.exec(t, "create table tick (x int)") // by which the audit sees how far the standby is
	if a := <-answered; a.error != nil || !a.Clean() || a.Recorded != 11 {
		t.Errorf("%+v, %v", a.Report, a.error)
	}
}
