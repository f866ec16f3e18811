package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore"
)

// Harness is a store on a fresh database, and what the suite needs to look into it. The first three fields are
// required. The others are capabilities: a field that is nil declines the promises that cannot be tested without it,
// and Run says which.
type Harness[Tx any] struct {
	// Store is the store under test, on a database with no record and no effect in it. It must allow four calls at once;
	// of more, some may queue.
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

	// Spoil has ways, by name, to make tx impossible to commit without ending it: a statement that fails, a connection
	// that breaks. What they return is swallowed by the suite's functions. Leave out what does no harm in this database.
	Spoil map[string]func(ctx context.Context, tx Tx) error

	// Lose breaks the connection of tx. The suite's functions return its error, or swallow it.
	Lose func(ctx context.Context, tx Tx) error

	// End has ways, by name, in which a function might end tx itself: its Commit, its Rollback, the texts. They may be
	// refused, or succeed.
	End map[string]func(ctx context.Context, tx Tx) error

	// Cut returns a store on the same database that loses its connection at that moment of its next COMMIT, and no other.
	Cut func(t testing.TB, at Moment) dedupstore.Store[Tx]

	// Impatient is a store on the same database that ends a transaction which its function leaves alone for some tenths
	// of a second.
	Impatient dedupstore.Store[Tx]

	// Brief is a store on the same database that waits for a held key for some tenths of a second only.
	Brief dedupstore.Store[Tx]

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

// Run runs the suite, each case as a parallel subtest on a database of its own, which open makes. Cases that the
// harness declines are skipped, and listed at the end.
func Run[Tx any](t *testing.T, open func(t testing.TB) Harness[Tx]) {
	t.Helper()
	var declined list
	t.Cleanup(func() { declined.log(t) })
	for _, c := range cases[Tx]() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			if why := c.declined(h); why != "" {
				declined.add(c.name)
				t.Skip("declined:", why)
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
		slices.Sort(l.names)
		t.Logf("this store declines %d cases: %s", len(l.names), strings.Join(l.names, "; "))
	}
}

// patience is how long a case waits for what must happen.
const patience = 2 * time.Minute

// testCase is one case of the suite. The name begins with the number of the promise.
type testCase[Tx any] struct {
	name  string
	needs need
	run   func(*suite[Tx])
}

// need is what a case cannot do without.
type need string

const (
	nothing   need = ""
	other     need = "Harness.Other is nil"
	spoil     need = "Harness.Spoil is nil"
	lose      need = "Harness.Lose is nil"
	brief     need = "Harness.Brief is nil"
	end       need = "Harness.End is nil"
	cut       need = "Harness.Cut is nil"
	impatient need = "Harness.Impatient is nil"
	checker   need = "the store is no dedupstore.Checker"
	unkeyed   need = "the store is no dedupstore.Transactor"
	forgets   need = "the store is no dedupstore.Forgetter, or no Transactor"
)

// declined says what the case needs and h does not have, if there is something.
func (c testCase[Tx]) declined(h Harness[Tx]) string {
	_, checks := h.Store.(dedupstore.Checker)
	_, transacts := h.Store.(dedupstore.Transactor[Tx])
	_, forgetting := h.Store.(dedupstore.Forgetter[Tx])
	has := map[need]bool{
		nothing: true, other: h.Other != nil, spoil: h.Spoil != nil, end: h.End != nil,
		lose: h.Lose != nil, brief: h.Brief != nil, cut: h.Cut != nil, impatient: h.Impatient != nil, checker: checks,
		unkeyed: transacts,
		forgets: forgetting && transacts,
	}
	if has[c.needs] {
		return ""
	}
	return string(c.needs)
}

func cases[Tx any]() []testCase[Tx] {
	return []testCase[Tx]{
		{"01 first delivery", nothing, (*suite[Tx]).firstDelivery},
		{"02 duplicate", nothing, (*suite[Tx]).duplicate},
		{"03 waits for a commit", nothing, (*suite[Tx]).waitsForCommit},
		{"03 waits for another owner's commit", other, (*suite[Tx]).waitsForOtherCommit},
		{"04 waits for a rollback", nothing, (*suite[Tx]).waitsForRollback},
		{"04 waits for another owner's rollback", other, (*suite[Tx]).waitsForOtherRollback},
		{"05 error", nothing, (*suite[Tx]).failure},
		{"06 panic", nothing, (*suite[Tx]).panics},
		{"06 goexit", nothing, (*suite[Tx]).goexit},
		{"07 context done, nil returned", nothing, (*suite[Tx]).contextDone},
		{"07 deadline passed, nil returned", nothing, (*suite[Tx]).deadlinePassed},
		{"07 context done before", nothing, (*suite[Tx]).contextDoneBefore},
		{"08 swallowed failure", spoil, (*suite[Tx]).swallowed},
		{"09 function ends the transaction", end, (*suite[Tx]).ended},
		{"10 two consumers", nothing, (*suite[Tx]).twoConsumers},
		{"11 odd keys", nothing, (*suite[Tx]).oddKeys},
		{"12 invalid keys", nothing, (*suite[Tx]).invalidKeys},
		{"13 outcome unknown", cut, (*suite[Tx]).outcomeUnknown},
		{"14 frozen owner", impatient, (*suite[Tx]).frozenOwner},
		{"15 many workers", nothing, (*suite[Tx]).workers},
		{"17 check", checker, (*suite[Tx]).check},
		{"18 class of a key held for too long", brief, (*suite[Tx]).heldTooLong},
		{"18 class of a wait that the context ends", nothing, (*suite[Tx]).cancelledWhileWaiting},
		{"18 class of a lost connection", lose, (*suite[Tx]).lostConnection},
		{"19 transaction without a key", unkeyed, (*suite[Tx]).unkeyed},
		{"20 forget", forgets, (*suite[Tx]).forget},
	}
}
