package idempotencytest

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ProviderConfig is what can be chosen about a Provider. Nil means all defaults.
type ProviderConfig struct {
	// Script has a fault for each request, in the order in which they arrive. Requests after its end are Faults' business.
	Script []Fault

	// Faults chooses the fault of a request. It is called for one request after the other. Defaults to none; RandomFaults
	// makes one.
	Faults func(ProviderCall) Fault

	// Effect makes the answer to a request that takes effect, with the effect, if the test wants one of its own beside the
	// Provider's count. It may run for several keys at once, for one key never. A panic is no effect: the connection is
	// cut, and the key is as it was before. Defaults to 201 and {"id":"<number of the effect>"}.
	Effect func(r *http.Request, body []byte) (status int, answer []byte)

	// InProgress is how often a key is answered by 409 after FailDuring or DropDuring, before its answer is there.
	// Defaults to 1.
	InProgress int

	// Header is the name of the field that carries the key. Defaults to Idempotency-Key.
	Header string

	// KeyOptional lets requests without a key take effect, each of them, counted under "". By default they are answered by
	// 400.
	KeyOptional bool
}

// ProviderCall is a request that a Provider has received.
type ProviderCall struct {
	Number int         // from 1, in the order of arrival
	Key    string      // without quotes; "" without one
	Field  []string    // the values of the key's field, as they were sent
	Header http.Header // all fields
	Method string
	Path   string
	Body   []byte
	Fault  Fault // what the Provider did wrong with it
	Status int   // of the answer; 0 if the connection was cut before or within it
}

// Provider is a service that honours idempotency keys, as the IETF's draft has it, and fails as often and wherever a
// test wants it to: a payment provider to call in tests. It counts its effects, so that a test can tell that each call
// took effect once.
//
// A request with a new key takes effect and is answered; the same request again is answered as before, with the field
// Idempotent-Replayed. While the first is in progress the answer is 409, for another request with the same key 422,
// without a key 400. Answers that ask for another attempt carry "Retry-After: 0", so that tests are quick.
//
// It is an http.Handler, safe for concurrent use. Serve it by httptest.NewServer, since faults cut connections. The
// http.Transport itself repeats a request with a key when a kept connection is cut, which uses up a fault: a test that
// counts attempts sets DisableKeepAlives.
type Provider struct {
	cfg ProviderConfig

	mu      sync.Mutex
	calls   []ProviderCall
	keys    map[string]*providerKey
	effects map[string]int
	total   int
}

// providerKey is what a Provider knows of a key.
type providerKey struct {
	request  string // what the key was first used for
	running  bool   // its effect is being made
	busy     int    // answers 409 that are left
	status   int    // of the answer that is kept; 0 as long as there is none
	answer   []byte
	replayed bool // the next answer is not the first
}

// NewProvider returns a Provider without effects.
func NewProvider(cfg *ProviderConfig) *Provider {
	if cfg == nil {
		cfg = &ProviderConfig{}
	}
	p := &Provider{cfg: *cfg, keys: map[string]*providerKey{}, effects: map[string]int{}}
	p.cfg.Script = slices.Clone(cfg.Script)
	if p.cfg.InProgress == 0 {
		p.cfg.InProgress = 1
	}
	if p.cfg.Header == "" {
		p.cfg.Header = "Idempotency-Key"
	}
	return p
}

// Effects returns how often each key has taken effect.
func (p *Provider) Effects() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.effects)
}

// Calls returns the requests that have been received, in the order of their arrival.
func (p *Provider) Calls() []ProviderCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// ServeHTTP implements http.Handler.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	call := p.arrive(r, body)
	if status, answer, ok := call.Fault.before(); ok {
		p.answer(w, call, status, answer, false)
		return
	}
	status, answer, replayed := p.take(r, call)
	if call.Fault.hides() && status < http.StatusBadRequest {
		status = http.StatusInternalServerError
		answer, replayed = problem(status, "Fault behind the effect"), false
	}
	p.answer(w, call, status, answer, replayed)
}

// arrive notes the request and chooses its fault.
func (p *Provider) arrive(r *http.Request, body []byte) ProviderCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := ProviderCall{
		Number: len(p.calls) + 1, Field: r.Header.Values(p.cfg.Header), Header: r.Header.Clone(),
		Method: r.Method, Path: r.URL.Path, Body: body,
	}
	call.Key = unquote(r.Header.Get(p.cfg.Header))
	switch {
	case call.Number <= len(p.cfg.Script):
		call.Fault = p.cfg.Script[call.Number-1]
	case p.cfg.Faults != nil:
		call.Fault = p.cfg.Faults(call)
	}
	p.calls = append(p.calls, call)
	return call
}

// take answers by what the key stands for, and makes the effect if it is new.
func (p *Provider) take(r *http.Request, call ProviderCall) (status int, answer []byte, replayed bool) {
	key, status, title := p.claim(call)
	switch {
	case status != 0:
		return status, problem(status, title), false
	case key.status == 0:
		p.effect(r, call, key)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	replayed, key.replayed = key.replayed, true
	return key.status, key.answer, replayed
}

// claim returns the key if the request may have its answer, or make its effect; or what else to answer.
func (p *Provider) claim(call ProviderCall) (key *providerKey, status int, title string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if call.Key == "" {
		if p.cfg.KeyOptional {
			return &providerKey{running: true}, 0, ""
		}
		return nil, http.StatusBadRequest, "Idempotency-Key is missing"
	}
	request := call.Method + " " + call.Path + "\n" + string(call.Body)
	key = p.keys[call.Key]
	switch {
	case key == nil:
		key = &providerKey{request: request, running: true}
		p.keys[call.Key] = key
	case key.request != request:
		return nil, http.StatusUnprocessableEntity, "Idempotency-Key is already used"
	case key.running:
		return nil, http.StatusConflict, "A request is outstanding for this Idempotency-Key"
	case key.busy > 0:
		key.busy--
		return nil, http.StatusConflict, "A request is outstanding for this Idempotency-Key"
	}
	return key, 0, ""
}

// effect counts, and keeps the answer for the key.
func (p *Provider) effect(r *http.Request, call ProviderCall, key *providerKey) {
	number, done := p.count(call), false
	defer func() {
		if !done {
			p.takeBack(call)
		}
	}()
	status, answer := http.StatusCreated, []byte(`{"id":"`+strconv.Itoa(number)+`"}`)
	if p.cfg.Effect != nil {
		r.Body = io.NopCloser(bytes.NewReader(call.Body))
		status, answer = p.cfg.Effect(r, call.Body)
	}
	done = true
	p.mu.Lock()
	defer p.mu.Unlock()
	key.status, key.answer, key.running = status, answer, false
	if call.Fault.lasts() {
		key.busy = p.cfg.InProgress
	}
}

func (p *Provider) count(call ProviderCall) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total++
	p.effects[call.Key]++
	return p.total
}

// takeBack forgets an effect that did not come about. Its number stays used.
func (p *Provider) takeBack(call ProviderCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, call.Key)
	if p.effects[call.Key]--; p.effects[call.Key] == 0 {
		delete(p.effects, call.Key)
	}
}

// answer writes what the fault leaves of the answer.
func (p *Provider) answer(w http.ResponseWriter, call ProviderCall, status int, answer []byte, replayed bool) {
	if call.Fault.cuts() {
		cut(w, call.Fault, status, answer)
	}
	p.note(call, status)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch {
	case replayed:
		h.Set("Idempotent-Replayed", "true")
	case status == http.StatusConflict, status == http.StatusTooManyRequests, status >= 500:
		h.Set("Retry-After", "0")
	}
	if status >= 400 {
		h.Set("Content-Type", "application/problem+json")
	}
	h.Set("Content-Length", strconv.Itoa(len(answer)))
	w.WriteHeader(status)
	_, _ = w.Write(answer)
}

func (p *Provider) note(call ProviderCall, status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[call.Number-1].Status = status
}

// cut ends the connection, behind the first half of the answer if the fault is CutAnswer.
func cut(w http.ResponseWriter, fault Fault, status int, answer []byte) {
	if fault == CutAnswer {
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.WriteHeader(status)
		_, _ = w.Write(answer[:len(answer)/2])
		_ = http.NewResponseController(w).Flush()
	}
	panic(http.ErrAbortHandler)
}

func problem(status int, title string) []byte {
	return []byte(`{"status":` + strconv.Itoa(status) + `,"title":` + strconv.Quote(title) + `}`)
}

// unquote returns the key of a field: a string of RFC 8941, or a bare value.
func unquote(field string) string {
	inner, ok := strings.CutPrefix(field, `"`)
	if !ok {
		return field
	}
	return unescape.Replace(strings.TrimSuffix(inner, `"`))
}

var unescape = strings.NewReplacer(`\\`, `\`, `\"`, `"`)
