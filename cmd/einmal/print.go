package main

import (
	"bytes"
	"encoding/json"
	"io"

	"github.com/einmal-go/einmal/internal/redact"
)

// maxPrinted is how much of a text is printed, in bytes.
const maxPrinted = 1 << 20

// plain is what of a text that came from elsewhere may be seen on a terminal.
func plain(text string) string { return redact.Line(redact.Text(text, maxPrinted)) }

// printJSON prints v as a line, or indented, in which nothing moves a terminal.
func printJSON(to io.Writer, v any, indent string) error {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetIndent("", indent)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	_, err := to.Write(redact.JSON(b.Bytes()))
	return err
}

// indentedJSON is for documents that people read.
const indentedJSON = "  "
