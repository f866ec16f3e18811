package storetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// Harness is a store on a fresh database, and what the suite needs to look into it. The first three fields are required.
// The others are capabilities: a field that is nil declines the promises that cannot be tested without it, and Run says
// which.
type Harness[Tx any] struct {
	// Store is the store under test, on a database with no record and no effect in it.
	Store dedupstore.Store[Tx]

	// Write writes one row with the name effect through tx. The table must accept a name twice: that is what the suite
	// looks for.
	Write func(ctx context.Context, tx Tx, effect string) error

	// Effects counts the rows with that name as another session sees them: committed ones only.
	Effects func(ctx context.Context, effect string) (int, error)

	// Other is a store on the same database that shares no connection and no memory with Store, like another process's.
	Other dedupstore.Store[Tx]

	// Waiting counts the calls of Once that wait now for a transaction that holds their key. Without it the suite gives
	// calls a tenth of a second to do what they must not do.
	Waiting func(ctx context.Context) (int, error)

	// Spoil has ways, by name, to make tx impossible to commit without ending it: a statement that fails, a connection that
	// breaks. What they return is swallowed by the suite's functions. Leave out what does no harm in this database.
	Spoil map[string]func(ctx context.Context, tx Tx) error

	// End has ways, by name, in which a function might end tx itself: its Commit, its Rollback, the texts. They may be
	// refused, or succeed.
	End map[string]func(ctx context.Context, tx Tx) error

	// Cut returns a store on the same database that loses its connection at that moment of its next COMMIT, and no other.
	Cut func(t testing.TB, at Moment) dedupstore.Store[Tx]

	// Impatient is a store on the same database that ends a transaction which its function leaves alone for some tenths
	// of a second.
	Impatient dedupstore.Store[Tx]

	// Hasty is a store on the same database whose COMMITs often miss their deadline.
	Hasty dedupstore.Store[Tx]
}

// Moment is a moment of a COMMIT at which a connection can be lost.
type Moment int

// The moments of Harness.Cut.
const (
	BeforeCommit Moment = iota + 1 // COMMIT does not reach the server
	AfterCommit                    // the server has committed, its answer does not come back
	CommitHangs                    // the same, but the connection stays up: the deadline of the COMMIT must end it
)

func (m Moment) String() string {
	switch m {
	case BeforeCommit:
		return "lost before COMMIT"
	case AfterCommit:
		return "lost after COMMIT"
	case CommitHangs:
		return "no answer to COMMIT"
	}
	return fmt.Sprintf("Moment(%d)", int(m))
}

// Run runs the suite, each case as a parallel subtest on a database of its own, which open makes. Cases that the harness
// declines are skipped, and listed at the end.
func Run[Tx any](t *testing.T, open func(t testing.TB) Harness[Tx]) {
	t.Helper()
	var declined list
	t.Cleanup(func() { declined.log(t) })
	for _, c := range cases[Tx]() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			if missing := c.missing(h); missing != "" {
				declined.add(c.name)
				t.Skipf("declined: Harness.%s is nil", missing)
			}
			c.run(newSuite(t, h, patience))
		})
	}
}

// list is the names of the declined cases.
type list struct {
	mu    sync.Mutex
	names []string
}

func (l *list) add(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, name)
}

func (l *list) log(t testing.TB) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.names) > 0 {
		t.Logf("this store declines %d of the suite's cases: %q", len(l.names), l.names)
	}
}

// patience is how long a case waits for what must happen.
const patience = 30 * time.Second

// testCase is one case of the suite. The name begins with the number of the promise.
type testCase[Tx any] struct {
	name  string
	needs string // the field of Harness without which the case cannot run
	run   func(*suite[Tx])
}

func (c testCase[Tx]) missing(h Harness[Tx]) string {
	has := map[string]bool{
		"": true, "Other": h.Other != nil, "Spoil": h.Spoil != nil, "End": h.End != nil,
		"Cut": h.Cut != nil, "Impatient": h.Impatient != nil,
	}
	if _, ok := h.Store.(dedupstore.Checker); ok {
		has["Store.(dedupstore.Checker)"] = true
	}
	if has[c.needs] {
		return ""
	}
	return c.needs
}

func cases[Tx any]() []testCase[Tx] {
	return []testCase[Tx]{
		{"01 first delivery", "", (*suite[Tx]).firstDelivery},
		{"02 duplicate", "", (*suite[Tx]).duplicate},
		{"03 waits for a commit", "", (*suite[Tx]).waitsForCommit},
		{"03 waits for another owner's commit", "Other", (*suite[Tx]).waitsForOtherCommit},
		{"04 waits for a rollback", "", (*suite[Tx]).waitsForRollback},
		{"04 waits for another owner's rollback", "Other", (*suite[Tx]).waitsForOtherRollback},
		{"05 error", "", (*suite[Tx]).failure},
		{"06 panic", "", (*suite[Tx]).panics},
		{"06 goexit", "", (*suite[Tx]).goexit},
		{"07 context done, nil returned", "", (*suite[Tx]).contextDone},
		{"07 deadline passed, nil returned", "", (*suite[Tx]).deadlinePassed},
		{"07 context done before", "", (*suite[Tx]).contextDoneBefore},
		{"08 swallowed failure", "Spoil", (*suite[Tx]).swallowed},
		{"09 function ends the transaction", "End", (*suite[Tx]).ended},
		{"10 two consumers", "", (*suite[Tx]).twoConsumers},
		{"11 odd keys", "", (*suite[Tx]).oddKeys},
		{"12 invalid keys", "", (*suite[Tx]).invalidKeys},
		{"13 outcome unknown", "Cut", (*suite[Tx]).outcomeUnknown},
		{"14 frozen owner", "Impatient", (*suite[Tx]).frozenOwner},
		{"15 many workers", "", (*suite[Tx]).workers},
		{"17 check", "Store.(dedupstore.Checker)", (*suite[Tx]).check},
	}
}
