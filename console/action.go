package console

import (
	"context"
	"net/url"
)

// Verb is a kind of action.
type Verb string

// Action is what somebody wants to do.
type Action struct {
	Verb Verb

	// Target names what it is done to: orders.confirmed[3] for example. It is "" where Config.Authorize is asked whether
	// to show a button at all.
	Target string
}

// deed is a kind of action: how it is asked for, and what does it. Its address is do/VERB; parameters of the address
// are its arguments, and come with the form.
type deed struct {
	verb   Verb
	title  string // "Pause a partition"
	button string // "Pause"

	// prepare looks at the arguments, changes nothing, and tells what would be done. A *refusal as the error says what is
	// wrong with them.
	prepare func(ctx context.Context, c *Console, args url.Values) (*plan, error)

	// do does it, soon: what takes long is a job. What it returns with an error was done before that.
	do func(ctx context.Context, c *Console, args url.Values, e *Entry) (outcome, error)
}

// plan is what a deed would do.
type plan struct {
	Target string   // for Action and Entry
	Says   []string // sentences: how many, which, what follows from it
	Fields []field  // arguments that people give, beside the reason
	Back   string   // the address of the page from which one comes, from the console's root
}

// field is an input of a form.
type field struct {
	Name, Label, Value, Hint string
	Options                  []string // to choose from; nil for a text
	Area                     bool     // of several lines
}

// outcome is what a deed came to.
type outcome struct {
	Count int64  // of what was changed
	Says  string // a sentence; "" for a standard one
	Next  string // the address of a page that shows it, from the console's root; "" for the page of results

	job *job // that does the rest, see begins; nil if the deed is done
}
