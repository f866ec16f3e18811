package record

import (
	"context"

	"github.com/einmal-go/einmal/dedupstore"
)

// Identity implements Dialect. The identifier of a cluster is that of its replicas too. Some services keep it from
// their users, and some servers that speak PostgreSQL's protocol have none.
func (p *Postgres) Identity(ctx context.Context, ask Query) (string, error) {
	id, err := ask(ctx, `select concat_ws('/', 'postgres', c.system_identifier, d.oid, $1::text::regclass::oid)
		from pg_catalog.pg_control_system() c, pg_catalog.pg_database d where d.datname = pg_catalog.current_database()`, p.table())
	switch {
	case StateOf(err) != "":
		return "", nil
	case err != nil && ctx.Err() != nil:
		return "", p.waited(ctx, err)
	case err != nil:
		return "", p.as(dedupstore.Unavailable, "ask which database it is: %w", err)
	}
	return id, nil
}

// Identity implements Dialect. A database in memory has no file to tell it by.
func (s *SQLite) Identity(ctx context.Context, ask Query) (string, error) {
	file, err := ask(ctx, "select coalesce((select file from pragma_database_list where name = 'main'), '')")
	if err != nil || file == "" {
		return "", err
	}
	return "sqlite/" + file + "/" + s.cfg.Table, nil
}
