package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode"
)

// statusOf runs einmal status with a token.
func statusOf(ctx context.Context, args ...string) (printed string) {
	var out, errs bytes.Buffer
	env := &environment{&out, &errs, func(string) string { return "s3cret-token" }, nil}
	run(ctx, env, append([]string{"status", "-env-token", "TOKEN"}, args...))
	return out.String() + errs.String()
}

func TestStatusGivesTheTokenToNobodyElse(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header.Get("Authorization") }))
	defer other.Close()
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusFound))
	defer first.Close()
	if text := statusOf(t.Context(), first.URL); !strings.Contains(text, "it redirects to "+other.URL) || len(got) > 0 {
		t.Errorf("the other server was asked %d times: %s", len(got), text)
	}
}

// A section whose value is of another form than its kind's is no reason to say that all is well.
func TestStatusOfAnotherForm(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"format": 1, "healthy": true, "sections": {"odd": {"value": {"kind": "outbox", "backlog": "many"}}}}`)
	}))
	defer server.Close()
	if text := statusOf(t.Context(), server.URL); !strings.Contains(text, "the section odd cannot be read") {
		t.Errorf("it says %s", text)
	}
}

// What a server answers moves nothing on the operator's terminal.
func TestStatusOfAHostileServer(t *testing.T) {
	t.Parallel()
	const nasty = "a\x1b[31m\u009b2J\u202eb"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	body := `{"format":1,"healthy":true,"sections":{"x":{"value":"` + "\u009b2J\u202e" + `"}}}`
	answers := map[string]string{"reason": "HTTP/1.1 500 " + nasty + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
		"json": fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(body), body)}
	for name, answer := range answers {
		go func() {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = conn.Write([]byte(answer))
			_ = conn.Close()
		}()
		text := statusOf(t.Context(), "-json", "http://"+listener.Addr().String()+"/")
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 ||
			len(text) < 40 {
			t.Errorf("%s: %q", name, text)
		}
	}
}
