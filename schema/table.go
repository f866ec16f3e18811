package schema

import (
	"regexp"
	"slices"
	"strings"
)

// table is what the files say of a table. It is read from them, so that a new file needs no second description.
type table struct {
	name      string // in the files
	component Component
	columns   []column
	keys      [][]string // the columns of its primary key, and of what else is unique
	indexes   []index    // the other ones
	options   []option   // storage parameters
	names     []string   // of its constraints and indexes, which an index of another table may have
}

// column has its definition as it can be added to a table: a type, and what follows it. preset is its default, or an
// empty text.
type column struct{ name, typ, definition, preset string }

type index struct {
	name    string
	columns []string
	where   string // a partial one's condition
	sql     string // the statement
}

type option struct{ name, value string }

// The statements of our own files.
var (
	createTableIs = regexp.MustCompile(`(?is)^create table if not exists (\w+)\s*\(`)
	createIndexIs = regexp.MustCompile(`(?is)^create (unique )?index if not exists (\w+)\s+on (\w+)[^(]*\(`)
	addColumnIs   = regexp.MustCompile(`(?is)^alter table (\w+) add column (?:if not exists )?(\w+)\s+(.*)$`)
	withIs        = regexp.MustCompile(`(?is)^\s*with\s*\(`)
	namedIs       = regexp.MustCompile(`(?is)^constraint (\w+) (?:primary key|unique)\b`)
	presetIs      = regexp.MustCompile(`(?is)\bdefault (\(.*\)|'[^']*'|[\w.]+(?:\(\))?)`)
	whereIs       = regexp.MustCompile(`(?is)^\s*where (.*)$`)
	constraintIs  = regexp.MustCompile(`(?is)^(?:constraint \w+ )?(primary key|unique|check|foreign key|exclude)\b\s*\(?`)
	typeEndsAt    = regexp.MustCompile(`(?i)\s+(collate|not|null|default|primary|unique|check|references|generated|constraint)\b`)
	uniqueColumn  = regexp.MustCompile(`(?i)\b(primary key|unique)\b`)
	comment       = regexp.MustCompile(`--.*|'[^']*'`)
	whiteSpace    = regexp.MustCompile(`\s+`)
)

// tablesIn reads the files.
func tablesIn(list []File) (tables []*table) {
	byName := map[string]*table{}
	for _, file := range list {
		for _, statement := range split(withoutComments(file.SQL), ';') {
			if m := createTableIs.FindStringSubmatch(statement); m != nil {
				t := &table{name: m[1], component: file.Component}
				t.define(statement[len(m[0]):])
				byName[t.name] = t
				tables = append(tables, t)
			} else if m := createIndexIs.FindStringSubmatch(statement); m != nil && byName[m[3]] != nil {
				columns, rest := enclosed(statement[len(m[0]):])
				i := index{name: m[2], columns: split(columns, ','), sql: statement}
				if where := whereIs.FindStringSubmatch(rest); where != nil {
					i.where = where[1]
				}
				byName[m[3]].index(m[1] != "", i)
			} else if m := addColumnIs.FindStringSubmatch(statement); m != nil && byName[m[1]] != nil {
				byName[m[1]].column(m[2], m[3])
			}
		}
	}
	return tables
}

// define reads what follows "create table name (".
func (t *table) define(text string) {
	body, rest := enclosed(text)
	for _, part := range split(body, ',') {
		if m := constraintIs.FindStringSubmatch(part); m == nil {
			name, definition, _ := strings.Cut(part, " ")
			t.column(name, definition)
		} else if kind := strings.ToLower(m[1]); kind == "primary key" || kind == "unique" {
			columns, _ := enclosed(part[len(m[0]):])
			t.keys = append(t.keys, split(columns, ','))
			if named := namedIs.FindStringSubmatch(part); named != nil {
				t.names = append(t.names, named[1])
			}
		}
	}
	if m := withIs.FindString(rest); m != "" {
		options, _ := enclosed(rest[len(m):])
		for _, part := range split(options, ',') {
			name, value, _ := strings.Cut(part, "=")
			t.options = append(t.options, option{strings.TrimSpace(name), strings.TrimSpace(value)})
		}
	}
}

func (t *table) column(name, definition string) {
	definition = strings.TrimSpace(definition)
	typ := definition
	if at := typeEndsAt.FindStringIndex(" " + definition); at != nil {
		typ = strings.TrimSpace((" " + definition)[:at[0]])
	}
	preset := ""
	if m := presetIs.FindStringSubmatch(definition); m != nil {
		preset = m[1]
	}
	t.columns = append(t.columns, column{name, typ, definition, preset})
	if uniqueColumn.MatchString(definition) {
		t.keys = append(t.keys, []string{name})
	}
}

func (t *table) index(unique bool, i index) {
	t.names = append(t.names, i.name)
	if unique {
		t.keys = append(t.keys, i.columns)
		return
	}
	t.indexes = append(t.indexes, i)
}

// inKey reports whether the column tells rows apart.
func (t *table) inKey(column string) bool {
	return slices.ContainsFunc(t.keys, func(key []string) bool { return slices.Contains(key, column) })
}

func (t *table) has(name string) bool {
	return slices.ContainsFunc(t.columns, func(c column) bool { return c.name == name })
}

func withoutComments(sql string) string {
	return comment.ReplaceAllStringFunc(sql, func(found string) string {
		if found[0] == '\'' {
			return found
		}
		return ""
	})
}

// split cuts a text at a separator, but not within parentheses or quotes. The parts are trimmed, white space in them is
// one blank, and empty ones are left out.
func split(text string, separator byte) (parts []string) {
	depth, quoted, begin := 0, byte(0), 0
	add := func(part string) {
		if part = whiteSpace.ReplaceAllString(strings.TrimSpace(part), " "); part != "" {
			parts = append(parts, part)
		}
	}
	for i := range len(text) {
		switch c := text[i]; {
		case quoted != 0:
			if c == quoted {
				quoted = 0
			}
		case c == '\'' || c == '"':
			quoted = c
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == separator && depth == 0:
			add(text[begin:i])
			begin = i + 1
		}
	}
	add(text[begin:])
	return parts
}

// enclosed cuts a text that follows an opening parenthesis at the closing one.
func enclosed(text string) (inside, rest string) {
	depth := 1
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth == 0 {
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}
