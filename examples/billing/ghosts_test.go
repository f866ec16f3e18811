package main

import (
	"context"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/internal/servers"
)

// A worker that is killed while it waits to join becomes a member that holds partitions. It must be expired.
func TestMemberThatDiedWhileJoiningIsExpired(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s := preparedStory(t, ctx)
	await := func(what, state string, members int) {
		t.Helper()
		is := func(g *kfake.GroupInfo) bool { return g != nil && g.State == state && len(g.Members) == members }
		if info, err := s.fake.WaitGroupInfo(ctx, s.group, is); err != nil {
			t.Fatalf("%s: %v; the group: %+v", what, err, info)
		}
	}

	must(t, s.start(0))
	await("a group of one", "Stable", 1)
	s.workers[0].signal(syscall.SIGSTOP) // so that the next one has to wait for it
	must(t, s.start(1))
	await("the second waits", "PreparingRebalance", 2)
	s.workers[1].kill()
	s.workers[0].signal(syscall.SIGCONT)
	await("a group with a dead member", "Stable", 2)

	var background sync.WaitGroup
	background.Go(func() { servers.ExpireGhosts(ctx, s.fake, s.group) })
	defer background.Wait()
	defer cancel()
	await("it is expired", "Stable", 1)
}
