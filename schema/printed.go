package schema

import (
	"regexp"
	"strings"
)

// printedBy is the command that prints the SQL of the component's tables, in one line.
func (c *comparison) printedBy() string {
	words := []string{"einmal schema print -db", string(c.dialect)}
	if c.cfg.Schema != "" {
		words = append(words, "-schema", shellWord(c.cfg.Schema))
	}
	for _, name := range c.dialect.Tables(c.table.component) {
		if other := c.cfg.Tables[name]; other != "" && other != name {
			words = append(words, "-table", shellWord(name+"="+other))
		}
	}
	return strings.Join(append(words, string(c.table.component)), " ")
}

var safeWord = regexp.MustCompile(`^[\w.=-]+$`)

// shellWord quotes text for a shell where it must be.
func shellWord(text string) string {
	if safeWord.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
