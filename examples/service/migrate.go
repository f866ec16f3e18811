package main

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"io/fs"
	"log/slog"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate runs the migrations that the database has not seen. Each must suit the version before it, too, which still
// runs meanwhile. Processes that begin at the same time wait for each other, by a lock of the session: url must lead
// to PostgreSQL itself, or to a pooler in session mode.
func migrate(ctx context.Context, log *slog.Logger, url string) (err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 300)) // asks each second, for five minutes
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	done, err := provider.Up(ctx)
	for _, m := range done {
		log.Info("migrated", slog.String("file", m.Source.Path), slog.String("took", m.Duration.String()))
	}
	return err
}
