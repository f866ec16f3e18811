package main

import (
	"fmt"
	"regexp"
	"strings"
)

// allowance is a line of the list.
type allowance struct {
	pattern *regexp.Regexp
	used    bool
}

func (a *allowance) covers(skip string) bool {
	covers := a.pattern.MatchString(skip)
	a.used = a.used || covers
	return covers
}

// parseAllowed reads the list. A line without a reason above it is an error.
func parseAllowed(text string) (all []*allowance, err error) {
	explained := false
	for i, line := range strings.Split(text, "\n") {
		switch line = strings.TrimSpace(line); {
		case line == "":
			explained = false
		case strings.HasPrefix(line, "#"):
			explained = true
		case !explained:
			return nil, fmt.Errorf("line %d: say in a line above it, which begins with #, why it may be skipped", i+1)
		default:
			pattern, err := regexp.Compile("^(?:" + line + ")$")
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
			all = append(all, &allowance{pattern: pattern})
		}
	}
	return all, nil
}
