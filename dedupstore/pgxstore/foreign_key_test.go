package pgxstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/einmal-go/einmal/dedupstore/pgxstore"
)

// A duplicate writes no column of the key, so it does not wait for who holds the row's key only, as a row that refers
// to it does.
func TestDuplicateBesideAForeignKey(t *testing.T) {
	t.Parallel()
	db := open(t)
	store := pgxstore.New(db.Pool, &pgxstore.Config{LockTimeout: 500 * time.Millisecond})
	if ran, err := store.Once(t.Context(), key("e"), writes("e")); !ran || err != nil {
		t.Fatalf("Once() = %v, %v", ran, err)
	}
	db.exec("create table child (event_id text, consumer_id text, foreign key (event_id, consumer_id) references processed_event)")
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), "insert into child values ('e', $1)", key("").Consumer); err != nil {
		t.Fatal(err)
	}
	if ran, err := store.Once(t.Context(), key("e"), writes("e")); ran || err != nil {
		t.Errorf("Once() = %v, %v, want a duplicate", ran, err)
	}
}
