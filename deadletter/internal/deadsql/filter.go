package deadsql

import (
	"fmt"
	"strings"

	"github.com/einmal-go/einmal/deadletter"
)

// conditions builds a where clause and its arguments.
type conditions struct {
	dialect *dialect
	texts   []string
	args    []any
}

func (c *conditions) add(format string, arg any) {
	c.texts = append(c.texts, fmt.Sprintf(format, c.dialect.param(c.arg(arg))))
}

// arg adds an argument and returns its number.
func (c *conditions) arg(arg any) int {
	c.args = append(c.args, arg)
	return len(c.args)
}

func (d *dialect) conditions(f deadletter.Filter) *conditions {
	c := &conditions{dialect: d}
	c.filter(f)
	return c
}

func (c *conditions) filter(f deadletter.Filter) {
	d := c.dialect
	for _, equal := range []struct{ column, value string }{
		{"consumer_id", f.Consumer}, {"topic", f.Topic}, {"kind", string(f.Kind)}, {"error_type", f.ErrorType},
	} {
		if equal.value != "" {
			c.add(equal.column+" = %s", equal.value)
		}
	}
	if !f.Since.IsZero() {
		c.add("died_at >= %s", d.time(f.Since))
	}
	if !f.Until.IsZero() {
		c.add("died_at < %s", d.time(f.Until))
	}
	if len(f.IDs) > 0 {
		params := make([]string, len(f.IDs))
		for i, id := range f.IDs {
			params[i] = d.param(c.arg(id))
		}
		c.texts = append(c.texts, "id in ("+strings.Join(params, ", ")+")")
	}
}

func (c *conditions) where() string {
	if len(c.texts) == 0 {
		return ""
	}
	return " where " + c.all()
}

// all is the condition that they all hold.
func (c *conditions) all() string {
	if len(c.texts) == 0 {
		return "1 = 1"
	}
	return strings.Join(c.texts, " and ")
}
