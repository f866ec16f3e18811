package main

import (
	"os"
	"strings"
	"testing"
)

// The picture shows what the table says.
func TestPicture(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/groups.md")
	if err != nil {
		t.Fatal(err)
	}
	bars, err := read(string(text))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := os.ReadFile("../../../docs/groups.svg")
	if err != nil {
		t.Fatal(err)
	}
	if string(picture) != draw(bars) {
		t.Error("docs/groups.svg is not drawn of the table of docs/groups.md: go run ./internal/cmd/drawbars docs/groups.md docs/groups.svg")
	}
}

func TestRead(t *testing.T) {
	t.Parallel()
	bars, err := read(mark + "\n| what | ratio | other |\n|---|---|---|\n| a `loop` | 0.5 | 7 |\n| x < y | 2 | 8 |\n\n| another | 3 |\n")
	if err != nil || len(bars) != 2 || bars[0] != (bar{"a loop", 0.5}) || bars[1] != (bar{"x < y", 2}) {
		t.Errorf("read() = %v, %v", bars, err)
	}
	if got := draw(bars); !strings.Contains(got, "x &lt; y") || !strings.Contains(got, ">2.00<") {
		t.Error(got)
	}
	for _, text := range []string{"| a | 1 |", mark + "\n| a | b |\n"} {
		if _, err := read(text); err == nil {
			t.Errorf("%q has bars", text)
		}
	}
}
