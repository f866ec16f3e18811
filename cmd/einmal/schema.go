package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/einmal-go/einmal/schema"
)

const components = "[component...]"

var aboutComponents = "Components: " + strings.Trim(fmt.Sprint(schema.Postgres.Components()), "[]") +
	". Each has tables of its own; name those that\n" +
	"you use. Without a name all are meant."

var aboutWhatIsThere = strings.ReplaceAll(aboutComponents, "Without a name all are meant.",
	"Without a name those are looked at\nof which a table is there.")

var schemaPrint = command{
	name: "schema print", args: components,
	about: "Print the SQL that creates the tables.",
	more:  aboutComponents + "\n\nThe statements do nothing where they have been run before.",
	setup: func(flags *flag.FlagSet) action {
		var tables tableFlags
		tables.add(flags)
		return func(_ context.Context, env *environment, args []string) error {
			w, err := tables.wants(env.getenv(envURL), args)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.stdout, w.dialect.SQL(w.cfg, w.components...))
			return err
		}
	},
}

var schemaApply = command{
	name: "schema apply", args: components,
	about: "Create the tables, and say what was created.",
	more: aboutComponents + "\n\nIt is one transaction: all of it happens, or nothing. Running it again is harmless. Indexes, and\n" +
		"columns of later versions, that a table lacks are added. Nothing else that is there is altered: what is wrong with it\n" +
		"is said, as by schema check, and if it is an error the exit code is 1. An index of a large table that is there\n" +
		"already keeps writers waiting while it is made: make it before, by create index concurrently.",
	setup: func(flags *flag.FlagSet) action {
		return onTables(flags, true, func(ctx context.Context, env *environment, db *sql.DB, w *wanted) error {
			before, after, err := w.apply(ctx, db)
			if err != nil {
				return err
			}
			w.report(env.stdout, before, after)
			show(env.stdout, after)
			if bad, _ := count(after); bad > 0 {
				return errNo
			}
			return nil
		})
	},
}

// onTables is the action of a command that works in a database, on the tables that flags and arguments name. It adds
// its flags.
func onTables(flags *flag.FlagSet, writes bool,
	work func(ctx context.Context, env *environment, db *sql.DB, w *wanted) error) action {
	var tables tableFlags
	var url urlFlags
	tables.add(flags)
	url.add(flags)
	return func(ctx context.Context, env *environment, args []string) error {
		ctx, cancel := context.WithTimeout(ctx, url.timeout)
		defer cancel()
		w, err := tables.wants(url.get(env), args)
		if err != nil {
			return err
		}
		db, err := url.open(ctx, env, w.dialect, writes)
		if err != nil {
			return err
		}
		defer db.Close()
		return work(ctx, env, db, w)
	}
}

// apply creates the tables, and returns what was found before and after.
func (w *wanted) apply(ctx context.Context, db *sql.DB) (before, after []schema.Finding, err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after a commit
	if w.dialect == schema.Postgres {
		// so that of two commands one says what it created
		if _, err := tx.ExecContext(ctx,
			"select pg_advisory_xact_lock(hashtext('einmal'), hashtext('einmal schema apply'))"); err != nil {
			return nil, nil, err
		}
	}
	if before, err = w.dialect.Check(ctx, ask(tx), w.cfg, w.components...); err != nil {
		return nil, nil, err
	}
	if err := taken(before); err != nil {
		return nil, nil, err
	}
	err = w.dialect.Apply(ctx, func(ctx context.Context, sql string) error {
		_, err := tx.ExecContext(ctx, sql)
		return err
	}, w.cfg, w.components...)
	if err != nil {
		return nil, nil, err
	}
	if after, err = w.dialect.Check(ctx, ask(tx), w.cfg, w.components...); err != nil {
		return nil, nil, err
	}
	if err := tx.Commit(); err != nil {
		return nil, nil, fmt.Errorf("commit: run it again, it is not known what happened: %w", err)
	}
	return before, after, nil
}

// taken is an error where a name that a table needs is another one's, as it is where an old table was renamed and its
// indexes were not.
func taken(before []schema.Finding) error {
	var errs []error
	for _, f := range before {
		if strings.HasPrefix(f.About, "name ") {
			errs = append(errs, fmt.Errorf("%s cannot be created: %s", unquoted(f.Table), f))
		}
	}
	return errors.Join(errs...)
}

// report says what has happened to each table.
func (w *wanted) report(to io.Writer, before, after []schema.Finding) {
	for _, name := range w.dialect.Tables(w.components...) {
		name = cmp.Or(w.cfg.Tables[name], name)
		if w.cfg.Schema != "" {
			name = w.cfg.Schema + "." + name
		}
		created, mended := false, []string{}
		for _, f := range before {
			if unquoted(f.Table) != name || slices.Contains(after, f) {
				continue
			}
			created = created || f.About == "table"
			mended = append(mended, f.Says)
		}
		switch {
		case created:
			fmt.Fprintf(to, "%s: created\n", name)
		case len(mended) > 0:
			fmt.Fprintf(to, "%s: was there; put right: %s\n", name, strings.Join(mended, "; "))
		default:
			fmt.Fprintf(to, "%s: was there\n", name)
		}
	}
}

var schemaCheck = command{
	name: "schema check", args: components,
	about: "Say what is missing or weak in a database.",
	more: aboutWhatIsThere + "\n\nAn error is what would refuse, lose or repeat events: a table, a column, a unique index, a privilege that is missing, an index or a\n" +
		"type that takes different events for the same. A warning is what becomes slow, large or fragile. It reads catalogues only,\n" +
		"as the user of the URL, or as -role. -for says what that one is for, so that no more is asked of it than it needs. The exit code is 1 if there is an error, with -strict also if there is a warning.",
	setup: func(flags *flag.FlagSet) action {
		asJSON := flags.Bool("json", false, "print JSON: ok, errors, warnings, findings, unused")
		strict := flags.Bool("strict", false, "take warnings for errors")
		purposes := flags.String("for", "", "the `purposes` of the user, or of -role, whose privileges are missing: "+
			purposeNames()+". Several with commas.\n"+
			"By default consumer and janitor")
		return onTables(flags, false, func(ctx context.Context, env *environment, db *sql.DB, w *wanted) error {
			for name := range strings.SplitSeq(*purposes, ",") {
				if p := schema.Purpose(name); slices.Contains(schema.Purposes(), p) {
					w.cfg.For = append(w.cfg.For, p)
				} else if *purposes != "" {
					return usagef("-for %s: there is no such purpose: they are %s", shown(name), purposeNames())
				}
			}
			found, err := w.dialect.Check(ctx, ask(db), w.cfg, w.components...)
			if err != nil {
				return err
			}
			var unused []schema.Component
			if !w.named {
				found, unused = w.withoutUnused(found)
			}
			if *asJSON {
				err = showJSON(env.stdout, found, unused)
			} else {
				show(env.stdout, found)
				showUnused(env.stdout, unused)
			}
			if bad, warnings := count(found); err == nil && (bad > 0 || *strict && warnings > 0) {
				return errNo
			}
			return err
		})
	},
}

// withoutUnused leaves out components of which no table exists and no flag speaks, and names them. If there is no table
// at all, it leaves out nothing.
func (w *wanted) withoutUnused(found []schema.Finding) (rest []schema.Finding, unused []schema.Component) {
	missing := map[schema.Component]int{}
	for _, f := range found {
		if f.About == "table" && f.Run != "" && f.Says == "it does not exist" {
			missing[f.Component]++
		}
	}
	components := w.dialect.Components()
	for _, c := range components {
		tables := w.dialect.Tables(c)
		renamed := slices.ContainsFunc(tables, func(name string) bool { return w.cfg.Tables[name] != "" })
		if missing[c] == len(tables) && !renamed {
			unused = append(unused, c)
		}
	}
	if len(unused) == len(components) {
		return found, nil
	}
	return slices.DeleteFunc(found, func(f schema.Finding) bool { return slices.Contains(unused, f.Component) }), unused
}

// showUnused says what was not looked at.
func showUnused(to io.Writer, unused []schema.Component) {
	if len(unused) > 0 {
		fmt.Fprintf(to, "not there, and not looked at: %s; name what you use\n", strings.Trim(fmt.Sprint(unused), "[]"))
	}
}

func purposeNames() string { return strings.Trim(fmt.Sprint(schema.Purposes()), "[]") }

// show prints what was found for a human.
func show(to io.Writer, found []schema.Finding) {
	shown := map[string]bool{}
	for _, f := range found {
		fmt.Fprintf(to, "%s: %s: %s\n", f.Level, cmp.Or(unquoted(f.Table), "the server"), f.Says)
		if f.Run != "" && !shown[f.Run] {
			fmt.Fprintf(to, "  run:\n%s\n", indented(f.Run))
			shown[f.Run] = true
		}
	}
	bad, warnings := count(found)
	fmt.Fprintf(to, "errors: %d, warnings: %d\n", bad, warnings)
}

func showJSON(to io.Writer, found []schema.Finding, unused []schema.Component) error {
	bad, warnings := count(found)
	return printJSON(to, struct {
		OK       bool               `json:"ok"`
		Errors   int                `json:"errors"`
		Warnings int                `json:"warnings"`
		Findings []schema.Finding   `json:"findings"`
		Unused   []schema.Component `json:"unused,omitempty"` // whose tables do not exist, and were not asked for
	}{bad == 0, bad, warnings, append([]schema.Finding{}, found...), unused}, indentedJSON)
}

func count(found []schema.Finding) (bad, warnings int) {
	for _, f := range found {
		if f.Level == schema.LevelError {
			bad++
		} else {
			warnings++
		}
	}
	return bad, warnings
}

// unquoted is a table as it is read: the quotes around its name and its schema's are left out.
func unquoted(table string) string {
	return quotedName.ReplaceAllStringFunc(table, func(part string) string {
		return strings.ReplaceAll(part[1:len(part)-1], `""`, `"`)
	})
}

var quotedName = regexp.MustCompile(`"(?:[^"]|"")*"`)

func indented(text string) string {
	return "    " + strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n    ")
}
