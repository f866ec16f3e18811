// Package schematest reads the commands that stores name where a table is missing, for tests that do what an error
// says.
package schematest

import (
	"strings"

	"github.com/einmal-go/einmal/schema"
)

// command stands before the flags of what prints SQL.
const command = "what this prints: einmal schema print "

// Printed returns the text with each such command replaced by the SQL that it prints. What cannot be read as one stays.
func Printed(text string) string {
	before, rest, ok := strings.Cut(text, command)
	if !ok {
		return text
	}
	sql, rest := printed(rest)
	return strings.TrimSuffix(before, "and then ") + sql + Printed(rest)
}

// printed reads flags up to the component, and returns what follows it.
func printed(text string) (sql, rest string) {
	var dialect schema.Dialect
	cfg := &schema.Config{Tables: map[string]string{}}
	rest = text
	for rest != "" {
		var flag, value string
		if flag, rest = word(rest); !strings.HasPrefix(flag, "-") {
			flag = strings.TrimRight(flag, ";:,)")
			return dialect.SQL(cfg, schema.Component(flag)), rest
		}
		value, rest = word(rest)
		switch flag {
		case "-db":
			dialect = schema.Dialect(value)
		case "-schema":
			cfg.Schema = value
		case "-table":
			name, other, _ := strings.Cut(value, "=")
			cfg.Tables[name] = other
		}
	}
	return "", text
}

// word reads one word as a shell does, with the quotes that schema writes. The rest begins with what ended it.
func word(text string) (w, rest string) {
	text = strings.TrimLeft(text, " ")
	quoted := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\'':
			quoted = !quoted
		case quoted:
			w += string(c)
		case c == '\\' && i+1 < len(text):
			i++
			w += text[i : i+1]
		case c == ' ' || c == '\n' || c == ';':
			return w, text[i:]
		default:
			w += string(c)
		}
	}
	return w, ""
}
