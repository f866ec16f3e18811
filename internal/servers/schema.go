package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Schema is an empty schema within a database, for one test or one run of the demo.
type Schema struct {
	// Name is unique, short, and needs no quoting.
	Name string
	// URL connects with the search_path set to this schema alone. It carries the password: keep it out of logs.
	URL string

	database string
}

// NewSchema creates a schema. Its name begins with label, of which lower-case letters and digits are kept.
func (d *Database) NewSchema(ctx context.Context, label string) (*Schema, error) {
	name := schemaName(label)
	u, err := withSearchPath(d.URL, name)
	if err != nil {
		return nil, err
	}
	s := &Schema{Name: name, URL: u, database: d.URL}
	return s, withConn(ctx, d.URL, func(c *pgx.Conn) error {
		if _, err := c.Exec(ctx, "CREATE SCHEMA "+s.quoted()); err != nil {
			return fmt.Errorf("create a schema: %w", err)
		}
		return nil
	})
}

const labelLimit = 24

// schemaName is a letter, what can be kept of the label, and 40 random bits.
func schemaName(label string) string {
	kept := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(label))
	return "t_" + kept[:min(len(kept), labelLimit)] + "_" + strings.ToLower(rand.Text()[:8])
}

// withSearchPath sets the runtime parameter in both forms that libpq and pgx take. In a URL a blank must be %20: not
// every reader of such URLs takes the plus sign for one.
func withSearchPath(database, schema string) (string, error) {
	if !strings.HasPrefix(database, "postgres://") && !strings.HasPrefix(database, "postgresql://") {
		return database + " search_path=" + schema, nil
	}
	u, err := url.Parse(database)
	if err != nil {
		return "", errors.New("the database's URL cannot be parsed: percent-encode special characters in its user and password")
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String(), nil
}

func (s *Schema) quoted() string { return pgx.Identifier{s.Name}.Sanitize() }

// Drop removes the schema with all that is in it. Sessions that still hold a lock in it, such as one with a transaction
// that was left open, are ended after two seconds.
func (s *Schema) Drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	err := withConn(ctx, s.database, func(c *pgx.Conn) error {
		err := s.tryDrop(ctx, c)
		for range 3 {
			if !isLockTimeout(err) {
				return err
			}
			if err := s.endSessions(ctx, c); err != nil {
				return err
			}
			err = s.tryDrop(ctx, c)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("drop schema %s: %w", s.Name, err)
	}
	return nil
}

func (s *Schema) tryDrop(ctx context.Context, c *pgx.Conn) error {
	if _, err := c.Exec(ctx, "SET lock_timeout = '2s'"); err != nil {
		return err
	}
	_, err := c.Exec(ctx, "DROP SCHEMA IF EXISTS "+s.quoted()+" CASCADE")
	return err
}

func isLockTimeout(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "55P03"
}

// endSessions ends those that hold or await a lock on the schema or on a table or index in it.
func (s *Schema) endSessions(ctx context.Context, c *pgx.Conn) error {
	_, err := c.Exec(ctx, `
		SELECT pg_terminate_backend(l.pid)
		FROM pg_locks l
		JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
		LEFT JOIN pg_class c ON l.locktype = 'relation' AND c.oid = l.relation
		JOIN pg_namespace n ON n.oid = c.relnamespace
			OR l.locktype = 'object' AND l.classid = 'pg_namespace'::regclass AND n.oid = l.objid
		WHERE n.nspname = $1 AND l.pid <> pg_backend_pid()`, s.Name)
	return err
}
