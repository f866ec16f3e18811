package schema

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

// namer puts other names into a file. Setting the search_path for the schema instead would outlive the text, in a
// pooled connection or in the caller's transaction.
type namer struct {
	schema string            // "" for none
	tables []string          // all tables of the dialect
	other  map[string]string // their other names
}

// word finds the names in a file, and what is to be left alone: comments and texts.
var word = regexp.MustCompile(`--.*|'[^']*'|\w+`)

func (n *namer) in(sql string) string {
	return word.ReplaceAllStringFunc(sql, func(word string) string {
		table := n.tableOf(word)
		if table == "" {
			return word
		}
		suffix := word[len(table):]
		if name := n.other[table]; name != "" {
			word = quote(suffixed(name, suffix))
		}
		if suffix == "" && n.schema != "" { // a constraint and an index are where their table is
			word = quote(n.schema) + "." + word
		}
		return word
	})
}

// suffixes are the names of a table's constraints and indexes, without quotes.
func (n *namer) suffixes(t *table) []string {
	names := []string{}
	for _, name := range t.names {
		if other := n.other[t.name]; other != "" {
			name = suffixed(other, name[len(t.name):])
		}
		names = append(names, name)
	}
	return names
}

// tableOf returns the table that a word names, or whose constraint or index it names, or "".
func (n *namer) tableOf(word string) (found string) {
	for _, table := range n.tables {
		if (word == table || strings.HasPrefix(word, table+"_")) && len(table) > len(found) {
			found = table
		}
	}
	return found
}

var createTable = regexp.MustCompile(`(?m)^create table if not exists (\w+)`)

func tablesOf(list []File) (tables []string) {
	for _, file := range list {
		for _, m := range createTable.FindAllStringSubmatch(file.SQL, -1) {
			tables = append(tables, m[1])
		}
	}
	return tables
}

// suffixed is a name with a suffix, within the 63 bytes after which PostgreSQL would cut the suffix off.
func suffixed(name, suffix string) string {
	const most = 63
	for len(name)+len(suffix) > most && name != "" {
		_, size := utf8.DecodeLastRuneInString(name)
		name = name[:len(name)-size]
	}
	return name + suffix
}

// quote makes an identifier of a name.
func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
