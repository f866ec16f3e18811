// Package topicname knows which names Kafka allows for topics.
package topicname

import (
	"fmt"
	"regexp"
)

// legal is what Kafka allows, but for the names . and .. .
var legal = regexp.MustCompile(`\A[a-zA-Z0-9._-]{1,249}\z`)

// Check returns an error that says what a name may have, unless Kafka allows this one.
func Check(name string) error {
	if !legal.MatchString(name) || name == "." || name == ".." {
		return fmt.Errorf("%.60q is not the name of a topic: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
			name)
	}
	return nil
}
