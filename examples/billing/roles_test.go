package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/einmal-go/einmal/examples/billing/story"
	"github.com/einmal-go/einmal/internal/rolestest"
	"github.com/einmal-go/einmal/internal/servers/serverstest"
	"github.com/einmal-go/einmal/schema"
)

// job is what a process of the story does in its service's database: which roles of docs/security.md it has, and what
// its handlers do beside.
type job struct {
	purposes []string
	own      []string // %s is the role
}

// jobs of the cast, and of who looks at the service, by service and name.
var jobs = map[string]map[string]job{
	"orders": {
		"orders":     {[]string{"requests", "writer"}, []string{"grant insert on orders to %s"}},
		"relay":      {[]string{"relay"}, nil},
		story.Reader: {[]string{"reader"}, []string{"grant select on orders to %s"}},
	},
	"billing": {
		"billing 1":  {[]string{"consumer", "writer", "relay"}, []string{"grant insert on charge to %s"}},
		"billing 2":  {[]string{"consumer", "writer", "relay"}, []string{"grant insert on charge to %s"}},
		story.Reader: {[]string{"reader"}, []string{"grant select on charge to %s"}},
	},
	"provider": {
		"provider":   {[]string{"requests"}, []string{"grant insert on payment to %s"}},
		story.Reader: {[]string{"reader"}, []string{"grant select on payment to %s"}},
	},
	"receipts": {
		// bun returns the number that the row was given
		"receipts":   {[]string{"consumer"}, []string{"grant insert, select (id) on receipt to %s"}},
		story.Reader: {[]string{"reader"}, []string{"grant select on receipt to %s"}},
	},
}

var ownTables = map[string]string{"orders": orderTable, "billing": chargeTable, "provider": paymentTable,
	"receipts": receiptTable}

// hired are the roles of a story.
type hired struct {
	owners map[string]*pgxpool.Pool              // by service
	roles  map[string]map[string]*rolestest.Role // by service and name
}

// asRoles makes the tables of all services as their owner, and gives everybody in the options a role with exactly the
// rights of the page.
func asRoles(t *testing.T, d story.Databases) *hired {
	t.Helper()
	h := &hired{map[string]*pgxpool.Pool{}, map[string]map[string]*rolestest.Role{}}
	for service, url := range map[string]string{"orders": d.Orders, "billing": d.Billing, "provider": d.Provider,
		"receipts": d.Receipts} {
		owner, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(owner.Close)
		if err := createTables(t.Context(), owner, ownTables[service], schema.Postgres.Components()...); err != nil {
			t.Fatal(err)
		}
		h.owners[service], h.roles[service] = owner, map[string]*rolestest.Role{}
		for name, j := range jobs[service] {
			h.roles[service][name] = rolestest.NewOf(t, owner, j.purposes, j.own...)
		}
	}
	return h
}

// revoke takes a right away from one of them.
func (h *hired) revoke(t *testing.T, service, name, right string) {
	t.Helper()
	if _, err := h.owners[service].Exec(t.Context(), "revoke "+right+" from "+
		h.roles[service][name].Name); err != nil {
		t.Fatal(err)
	}
}

func (h *hired) url(who, service string) string { return h.roles[service][who].URL }

// TestStoryAsRoles has everybody in the story work as a role with exactly the rights of docs/security.md, whatever is
// killed, and who counts and audits look as the reader.
func TestStoryAsRoles(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	d := databases(t)
	s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 100, Kills: 6, Seed: 1, Drop: 0.1, Out: &out,
		Databases: d, As: asRoles(t, d).url})
	f, err := s.Tell(t.Context())
	t.Logf("%+v\n%s", f, out.String())
	if err != nil {
		t.Fatal(err)
	}
	if !f.Exact() || f.Requests != 100 || f.Kills != 6 || len(f.Audits) != 2 {
		t.Error("not every request was one order, one charge, one payment and one receipt")
	}
}

// TestStoryWithoutARight takes one right of the page away from one of the cast: the start or the server refuses it,
// and the story does not come to its end.
func TestStoryWithoutARight(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ service, name, right, table string }{
		{"orders", "orders", "insert on outbox_event", "outbox_event"},
		{"orders", "relay", "delete on outbox_event", "outbox_event"},
		{"receipts", "receipts", "update on processed_event", "processed_event"}, // seen at the start
		{"receipts", story.Reader, "select on dead_message", "dead_message"},
	} {
		t.Run(fmt.Sprintf("%s without %s", c.name, c.right), func(t *testing.T) {
			t.Parallel()
			d := databases(t)
			h := asRoles(t, d)
			h.revoke(t, c.service, c.name, c.right)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			log := &trigger{text: "permission denied for table " + c.table, f: func(string) { cancel() }}
			s := testStory(t, serverstest.InProcess(t), story.Options{Orders: 5, Seed: 1, Out: io.Discard, Log: log,
				Databases: d, As: h.url})
			_, err := s.Tell(ctx)
			refused := regexp.MustCompile(log.text + "|" + c.table + `" cannot be used: the user \w+ may not`)
			if err == nil || !refused.MatchString(err.Error()+log.String()) {
				t.Errorf("it ended with %v, want %q: %s", err, refused, log.String())
			}
		})
	}
}
