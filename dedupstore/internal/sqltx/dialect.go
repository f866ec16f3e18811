package sqltx

import (
	"database/sql"
	"errors"
	"fmt"
	"regexp"

	"github.com/einmal-go/einmal/dedupstore/internal/record"
	"github.com/einmal-go/einmal/schema"
)

// ForDialect fills in what depends on the database, for the store of that name. The error is about a dialect, or a
// configuration of it, that there is not.
func ForDialect[T Tx](driver Driver[T], store string, dialect schema.Dialect, cfg record.Config) (Driver[T],
	record.Dialect, error) {
	switch dialect {
	case schema.Postgres:
		driver.Isolation = sql.LevelReadCommitted
		return driver, record.NewPostgres(store, cfg, false), errors.Join(parameterIn("Schema", cfg.Schema),
			parameterIn("Table", cfg.Table))
	case schema.SQLite:
		var err error
		if cfg.Schema != "" {
			err = errors.New("invalid Config.Schema: SQLite has no schemas: leave it empty")
		}
		return driver, record.NewSQLite(store, cfg), err
	}
	return driver, record.NewPostgres(store, cfg, false),
		fmt.Errorf("the dialect %q is not known: use schema.Postgres or schema.SQLite", dialect)
}

var parameter = regexp.MustCompile(`\$[0-9]`)

// parameterIn refuses a name that a driver which writes the values into the texts would write them into.
func parameterIn(field, name string) error {
	if parameter.MatchString(name) {
		return fmt.Errorf("invalid Config.%s: some drivers take a $ before a digit for a parameter, even in a name: use another name", field)
	}
	return nil
}
