package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
)

// After SIGTERM, what is in work finishes; then serve returns.
func TestServeFinishesWhatIsInWork(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, terminate := context.WithCancel(t.Context())
	defer terminate()
	began, finish := make(chan struct{}), make(chan struct{})
	served := make(chan error, 1)
	go func() {
		served <- serve(ctx, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			close(began)
			<-finish
			if r.Context().Err() != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}))
	}()
	status := make(chan int, 1)
	go func() {
		answer, err := http.Get("http://" + l.Addr().String())
		if err != nil {
			t.Error(err)
			status <- 0
			return
		}
		_ = answer.Body.Close()
		status <- answer.StatusCode
	}()
	<-began
	terminate()
	for refused := false; !refused; { // it takes no more
		conn, err := net.Dial("tcp", l.Addr().String())
		if refused = err != nil; !refused {
			_ = conn.Close()
		}
	}
	select {
	case err := <-served:
		t.Errorf("serve has not waited: %v", err)
	default:
	}
	close(finish)
	if got := <-status; got != http.StatusOK {
		t.Errorf("status %d", got)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestListen(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{"fd:x": "give fd: and a number", "fd:60000": "no socket",
		"nowhere": "missing port"} {
		if _, err := listen(t.Context(), addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("listen(%q): %v, want %q", addr, err, want)
		}
	}
}
