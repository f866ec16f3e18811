package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// commands are all of them, in the order in which they are listed. A new one is a variable in the file of its group,
// and a line here.
var commands = []command{
	schemaPrint,
	schemaApply,
	schemaCheck,
	deadList,
	deadShow,
	deadRedrive,
	deadDiscard,
	outboxList,
	outboxShow,
	outboxRetry,
	outboxDiscard,
	outboxEdit,
	outboxMode,
	erase,
	statusShow,
	groupShow,
	messageShow,
	consoleServe,
	replayCheck,
	auditOutbox, // before its shorter name
	auditTopic,
	version,
}

// command is one of the commands.
type command struct {
	name  string // one or two words: "schema check"
	args  string // what may follow the flags, for -h
	about string // a line
	more  string // paragraphs for -h

	// setup adds the command's flags, and returns what it does once they are parsed.
	setup func(flags *flag.FlagSet) action
}

// action does what the command is for. Its error is nil, an errNo if it has said what is wrong by itself, a usageError,
// or what went wrong.
type action func(ctx context.Context, env *environment, args []string) error

// dispatch finds the command, parses its flags, and runs it.
func dispatch(ctx context.Context, env *environment, args []string) error {
	for _, c := range commands {
		if words := strings.Fields(c.name); len(args) >= len(words) && slices.Equal(args[:len(words)], words) {
			return c.run(ctx, env, args[len(words):])
		}
	}
	group := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") &&
		slices.ContainsFunc(commands, func(c command) bool { return strings.HasPrefix(c.name, args[0]+" ") }) {
		group, args = args[0], args[1:]
	}
	if len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help", "help"}, args[0]) {
		list(env.stdout, group)
		return nil
	}
	list(env.stderr, group)
	if len(args) == 0 {
		return usagef("name one of the commands")
	}
	return usagef("there is no such command; -h lists them")
}

// list shows the commands of a group, or all.
func list(w io.Writer, group string) {
	fmt.Fprintf(w, "usage: einmal %s [flags] [arguments]\n\n", strings.TrimSpace(group+" COMMAND"))
	for _, c := range commands {
		if group == "" || strings.HasPrefix(c.name, group+" ") {
			fmt.Fprintf(w, "  %-14s  %s\n", c.name, c.about)
		}
	}
	fmt.Fprintf(w, "\neinmal COMMAND -h explains a command. Exit codes: 0 all is well, 1 the answer is no or it failed, 2 wrong usage.\n")
}

func (c *command) run(ctx context.Context, env *environment, args []string) error {
	flags := flag.NewFlagSet(c.name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	do := c.setup(flags)
	operands, err := parse(flags, args)
	switch {
	case err == flag.ErrHelp: //nolint:errorlint // package flag returns it as it is
		c.explain(env.stdout, flags)
		return err
	case err != nil:
		return usagef("%s: %s; -h lists the flags", c.name, flagProblem(err))
	}
	return do(ctx, env, operands)
}

// quoted is what package flag repeats of a value, or of a flag that there is not.
var quoted = regexp.MustCompile(`(?s)(".*"|(?:not defined: |syntax: ).*)`)

// flagProblem is what package flag says, without what may be a URL that went astray, and its password.
func flagProblem(err error) string {
	return quoted.ReplaceAllStringFunc(err.Error(), func(found string) string {
		introduction, value := "", found
		if before, after, ok := strings.Cut(found, ": "); ok && found[0] != '"' {
			introduction, value = before+": ", after
		}
		if harmless.MatchString(value) {
			return found
		}
		return introduction + "(not shown)"
	})
}

// harmless is a word, a flag or a number.
var harmless = regexp.MustCompile(`\A"?[\w.,+-]{0,40}"?\z`)

// parse takes flags before, between and behind the other arguments.
func parse(flags *flag.FlagSet, args []string) (operands []string, err error) {
	for {
		if err := flags.Parse(args); err != nil {
			return nil, err
		}
		if args = flags.Args(); len(args) == 0 {
			return operands, nil
		}
		operands, args = append(operands, args[0]), args[1:]
	}
}

func (c *command) explain(w io.Writer, flags *flag.FlagSet) {
	fmt.Fprintf(w, "usage: einmal %s\n\n%s\n", strings.TrimSpace(c.name+" [flags] "+c.args), c.about)
	if c.more != "" {
		fmt.Fprintf(w, "\n%s\n", c.more)
	}
	fmt.Fprintln(w, "\nflags:")
	flags.SetOutput(w)
	flags.PrintDefaults()
}
