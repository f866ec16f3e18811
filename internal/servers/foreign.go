package servers

import (
	"context"
	"errors"
	"fmt"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// foreignSettings make texts different that nobody should read: those of errors, times and intervals. gettext looks at
// LANGUAGE under any locale but C, so no locale has to be installed. The zone is one that needs no database of zones.
var foreignSettings = []string{
	"lc_messages=C.UTF-8", "datestyle=German, DMY", "timezone=<+0545>-5:45", "intervalstyle=sql_standard",
	"max_connections=300", "fsync=off", "full_page_writes=off",
}

// Foreign starts an instance whose messages are Japanese, and whose times and intervals are written as few servers
// write them. It needs the catalogues of messages that come with PostgreSQL's packages, and fails where messages are
// English nevertheless.
func Foreign(ctx context.Context) (*Instance, error) {
	i, err := NewInstance(ctx, foreignSettings...)
	if err != nil {
		return nil, err
	}
	i.cluster.env = append(i.cluster.env, "LANGUAGE=ja")
	if err := i.Start(ctx); err != nil {
		return nil, joinClose(err, i.Close)
	}
	err = withConn(ctx, i.URL(), func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "select 1/0")
		refused, ok := errors.AsType[*pgconn.PgError](err)
		if !ok {
			return fmt.Errorf("a division by zero: %w", err)
		}
		for _, r := range refused.Message {
			if unicode.In(r, unicode.Hiragana, unicode.Katakana) {
				return nil
			}
		}
		return fmt.Errorf("its messages are not Japanese but %q: install the catalogues of the package postgresql (/usr/share/locale/ja/LC_MESSAGES)", refused.Message)
	})
	if err != nil {
		return nil, joinClose(err, i.Close)
	}
	i.Origin += ", in Japanese"
	return i, nil
}
