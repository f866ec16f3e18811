package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheFileIsThereWhileTheServersAre(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "servers.env")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	go func() { ended <- run(ctx, options{file: file}) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no file")
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestExports(t *testing.T) {
	t.Parallel()
	var r running
	r.add("", "A", "postgres://u:p@h/db?x=1&y=2", nil)
	r.add("", "B", "h:1,h:2", nil)
	if got, want := r.exports(), "export A='postgres://u:p@h/db?x=1&y=2'\nexport B='h:1,h:2'\n"; got != want {
		t.Errorf("exports = %q, want %q", got, want)
	}
}

func TestAFailureLeavesNoFileAndNoServer(t *testing.T) {
	t.Setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
	file := filepath.Join(t.TempDir(), "servers.env")
	if err := run(context.Background(), options{file: file, postgres: true}); err == nil {
		t.Error("no error without Docker")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the file is there")
	}
}
