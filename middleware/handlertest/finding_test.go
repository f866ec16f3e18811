package handlertest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestDifferenceInWords(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 12 {
		many = append(many, fmt.Sprintf("charge %02d", i))
	}
	for _, test := range []struct{ got, want, text string }{
		{"", "", ""},
		{"a,b,b", "a,b,b", ""},
		{"a,a", "a", `applied twice: "a"`},
		{"b,a,a,a", "a,b", `applied 3 times instead of 1: "a"`},
		{"c,c,c", "c,c", `applied 3 times instead of 2: "c"`},
		{"", "a", `lost: "a"`},
		{"a", "a,a", `there 1 times instead of 2: "a"`},
		{"a,b", "a", `one delivery does not make "b"`},
		{"sum=200", "sum=100", "one delivery does not make \"sum=200\"\ninstead of \"sum=100\""},
		{"", strings.Join(many, ","), "lost: \"charge 00\"\n...\nlost: \"charge 09\"\nand 2 more"},
	} {
		got := compare(sorted(test.got), sorted(test.want)).String()
		if first, last, cut := strings.Cut(test.text, "\n...\n"); cut {
			if !strings.HasPrefix(got, first+"\n") || !strings.HasSuffix(got, "\n"+last) ||
				strings.Count(got, "\n") != maxChanges {
				t.Errorf("%q instead of %q: %q", test.got, test.want, got)
			}
		} else if got != test.text {
			t.Errorf("%q instead of %q: %q, want %q", test.got, test.want, got, test.text)
		}
	}
}

func sorted(list string) []string {
	return slices.Sorted(strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' }))
}
