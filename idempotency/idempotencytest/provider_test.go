package idempotencytest_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/idempotency/idempotencytest"
)

// caller makes one request each time, and repeats nothing.
type caller struct {
	t      *testing.T
	url    string
	client *http.Client
}

func call(t *testing.T, p *idempotencytest.Provider) *caller {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	transport := &http.Transport{DisableKeepAlives: true}
	return &caller{t, server.URL, &http.Client{Transport: transport}}
}

// post returns the status and the body; 0 if the connection was cut before the answer, a body that ends with "..." if
// it was cut within.
func (c *caller) post(field, body string) (int, string, http.Header) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/charges", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	if field != "" {
		req.Header.Set("Idempotency-Key", field)
	}
	res, err := c.client.Do(req)
	if err != nil {
		return 0, "", nil
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return res.StatusCode, string(answer) + "...", res.Header
	}
	return res.StatusCode, string(answer), res.Header
}

func TestProviderHonoursKeys(t *testing.T) {
	t.Parallel()
	p := idempotencytest.NewProvider(nil)
	c := call(t, p)
	for _, tc := range []struct {
		field, body  string
		status       int
		answer       string
		replayed, ok bool
	}{
		{`"key-1"`, "a", 201, `{"id":"1"}`, false, true},
		{`"key-1"`, "a", 201, `{"id":"1"}`, true, true},
		{`key-1`, "a", 201, `{"id":"1"}`, true, true}, // bare is the same key
		{`"key-1"`, "b", 422, "", false, false},
		{`"key-2"`, "a", 201, `{"id":"2"}`, false, true},
		{"", "a", 400, "", false, false},
		{`"a\"b\\c"`, "a", 201, `{"id":"3"}`, false, true},
	} {
		status, answer, header := c.post(tc.field, tc.body)
		if status != tc.status || tc.ok && answer != tc.answer ||
			(header.Get("Idempotent-Replayed") == "true") != tc.replayed {
			t.Errorf("%s %s: %d %s %v, want %d %s", tc.field, tc.body, status, answer, header, tc.status, tc.answer)
		}
		if problem := header.Get("Content-Type") == "application/problem+json"; problem == tc.ok {
			t.Errorf("%s %s: Content-Type %q", tc.field, tc.body, header.Get("Content-Type"))
		}
	}
	if got, want := p.Effects(), map[string]int{"key-1": 1, "key-2": 1, `a"b\c`: 1}; !maps.Equal(got, want) {
		t.Errorf("effects %v, want %v", got, want)
	}
}

// A panic of the test's Effect, or its end by Goexit as t.FailNow does, is no effect: the key is free, for another
// request too.
func TestProviderWhoseEffectPanics(t *testing.T) {
	t.Parallel()
	for what, fail := range map[string]func(){"panic": func() { panic(http.ErrAbortHandler) }, "Goexit": runtime.Goexit} {
		for _, field := range []string{`"key-1"`, ""} {
			fails := true
			p := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{KeyOptional: true,
				Effect: func(_ *http.Request, body []byte) (int, []byte) {
					if fails {
						fail()
					}
					return http.StatusOK, body
				}})
			attempt := func(body string) (status int) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { _ = recover() }() // as a server does
					answer, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/charges", strings.NewReader(body))
					if field != "" {
						r.Header.Set("Idempotency-Key", field)
					}
					p.ServeHTTP(answer, r)
					status = answer.Code
				}()
				<-done
				return status
			}
			if status := attempt("a"); status != 0 || len(p.Effects()) != 0 {
				t.Errorf("%s %s: answered %d, effects %v", what, field, status, p.Effects())
			}
			fails = false
			if status := attempt("b"); status != http.StatusOK ||
				!maps.Equal(p.Effects(), map[string]int{strings.Trim(field, `"`): 1}) {
				t.Errorf("%s %s: then answered %d, effects %v", what, field, status, p.Effects())
			}
		}
	}
}

// Each fault, and what two more requests meet.
func TestProviderFaults(t *testing.T) {
	t.Parallel()
	for fault, want := range map[idempotencytest.Fault]struct {
		statuses []int
		first    string // the body of the first answer
	}{
		idempotencytest.NoFault:    {[]int{201, 201, 201}, `{"id":"1"}`},
		idempotencytest.FailBefore: {[]int{503, 201, 201}, `{"status":503,"title":"Fault before the effect"}`},
		idempotencytest.DropBefore: {[]int{0, 201, 201}, ""},
		idempotencytest.TooMany:    {[]int{429, 201, 201}, `{"status":429,"title":"Fault before the effect"}`},
		idempotencytest.FailDuring: {[]int{500, 409, 201}, `{"status":500,"title":"Fault behind the effect"}`},
		idempotencytest.DropDuring: {[]int{0, 409, 201}, ""},
		idempotencytest.FailAfter:  {[]int{500, 201, 201}, `{"status":500,"title":"Fault behind the effect"}`},
		idempotencytest.DropAfter:  {[]int{0, 201, 201}, ""},
		idempotencytest.CutAnswer:  {[]int{201, 201, 201}, `{"id"...`},
	} {
		p := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{Script: []idempotencytest.Fault{fault}})
		c := call(t, p)
		status, answer, _ := c.post(`"key-1"`, "a")
		statuses := []int{status}
		if answer != want.first {
			t.Errorf("%s: the first answer is %q, want %q", fault, answer, want.first)
		}
		before := map[idempotencytest.Fault]bool{idempotencytest.FailBefore: true, idempotencytest.DropBefore: true,
			idempotencytest.TooMany: true}
		if got := p.Effects()["key-1"]; got != map[bool]int{true: 0, false: 1}[before[fault]] {
			t.Errorf("%s: %d effects of the first request", fault, got)
		}
		for range 2 {
			status, _, _ := c.post(`"key-1"`, "a")
			statuses = append(statuses, status)
		}
		if !slices.Equal(statuses, want.statuses) {
			t.Errorf("%s: answers %v, want %v", fault, statuses, want.statuses)
		}
		if got := p.Effects(); !maps.Equal(got, map[string]int{"key-1": 1}) {
			t.Errorf("%s: effects %v, want one", fault, got)
		}
		if calls := p.Calls(); len(calls) != 3 || calls[0].Fault != fault || calls[2].Status != 201 ||
			string(calls[2].Body) != "a" {
			t.Errorf("%s: calls %+v", fault, calls)
		}
	}
}

// While an effect is being made, the same request is answered by 409, whoever asks.
func TestProviderInProgress(t *testing.T) {
	t.Parallel()
	began, finish := make(chan struct{}), make(chan struct{})
	p := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{
		Effect: func(*http.Request, []byte) (int, []byte) {
			close(began)
			<-finish
			return http.StatusOK, []byte("done")
		},
	})
	c := call(t, p)
	first := make(chan int)
	go func() {
		status, _, _ := c.post(`"key-1"`, "a")
		first <- status
	}()
	<-began
	for range 3 {
		if status, _, header := c.post(`"key-1"`, "a"); status != http.StatusConflict || header.Get("Retry-After") == "" {
			t.Errorf("answer %d, %v while the first is in progress", status, header)
		}
	}
	close(finish)
	if status := <-first; status != http.StatusOK {
		t.Errorf("answer %d to the first", status)
	}
	if status, answer, _ := c.post(`"key-1"`, "a"); status != http.StatusOK || answer != "done" {
		t.Errorf("answer %d %s behind the first", status, answer)
	}
	if got := p.Effects()["key-1"]; got != 1 {
		t.Errorf("%d effects", got)
	}
}

func TestProviderKeyOptional(t *testing.T) {
	t.Parallel()
	p := idempotencytest.NewProvider(&idempotencytest.ProviderConfig{KeyOptional: true, InProgress: 2, Header: "X-Key"})
	c := call(t, p)
	for range 2 { // the field of another name is none
		if status, _, _ := c.post(`"key-1"`, "a"); status != http.StatusCreated {
			t.Errorf("answer %d", status)
		}
	}
	if got := p.Effects(); !maps.Equal(got, map[string]int{"": 2}) {
		t.Errorf("effects %v, want two without a key", got)
	}
}

func TestRandomFaults(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64, share float64) (all []idempotencytest.Fault, counts map[idempotencytest.Fault]int) {
		f, counts := idempotencytest.RandomFaults(seed, share), map[idempotencytest.Fault]int{}
		for range 10_000 {
			fault := f(idempotencytest.ProviderCall{})
			all = append(all, fault)
			counts[fault]++
		}
		return all, counts
	}
	one, counts := draw(1, 0.4)
	if again, _ := draw(1, 0.4); !slices.Equal(one, again) {
		t.Error("the same seed gives other faults")
	}
	if other, _ := draw(2, 0.4); slices.Equal(one, other) {
		t.Error("another seed gives the same faults")
	}
	if n := counts[idempotencytest.NoFault]; n < 5_500 || n > 6_500 {
		t.Errorf("%d of 10,000 without a fault, want about 6,000", n)
	}
	for _, fault := range idempotencytest.Faults() {
		if n := counts[fault]; n < 350 || n > 650 {
			t.Errorf("%s: %d of 10,000, want about 500", fault, n)
		}
	}
	if _, counts := draw(1, 0); counts[idempotencytest.NoFault] != 10_000 {
		t.Errorf("faults %v for a share of 0", counts)
	}
	if _, counts := draw(1, 1); counts[idempotencytest.NoFault] != 0 {
		t.Errorf("faults %v for a share of 1", counts)
	}
}
