package servertest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/idempotency"
)

func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{})
	for name, values := range map[string][]string{
		"empty":                          {""},
		"blank":                          {"  "},
		"quoted, empty":                  {`""`},
		"256 bytes":                      {strings.Repeat("k", 256)},
		"quoted, 256 bytes":              {`"` + strings.Repeat("k", 256) + `"`},
		"10,000 bytes":                   {strings.Repeat("k", 10_000)},
		"quoted, 10,000 bytes":           {`"` + strings.Repeat("k", 10_000) + `"`},
		"not ASCII":                      {"schlüssel"},
		"quoted, not ASCII":              {`"schlüssel"`},
		"a byte that is no UTF-8":        {"\xff"},
		"a tab in it":                    {"a\tb"},
		"two fields":                     {"a", "b"},
		"two fields, the same":           {"a", "a"},
		"two fields, joined":             {"a,b"},
		"two quoted fields, joined":      {`"a", "b"`},
		"not closed":                     {`"a`},
		"only a quote":                   {`"`},
		"a quote too many":               {`"a"b"`},
		"a word behind it":               {`"a" b`},
		"two, with parameters":           {`"a";b=1, "c"`},
		"two, joined in a parameter":     {`"a";b=1,"c"`},
		"a parameter without a name":     {`"a";`},
		"a parameter not closed":         {`"a";b="c`},
		"a parameter's name in capitals": {`"a";B=1`},
		"a parameter without a key":      {`"";b=1`},
		"escaped that needs none":        {`"a\b"`},
		"escaped at the end":             {`"a\"`},
		"a quote in it":                  {`a"b`},
		"bare, with a blank":             {"a b"},
		"bare, with a backslash":         {`a\b`},
		"bare, with a semicolon":         {`a;b`},
		"a list of one, in parentheses?": {`(a b)`},
	} {
		r := s.do(func(r *http.Request) { r.Header["Idempotency-Key"] = values }, http.MethodPost, "/",
			strings.NewReader("{}"))
		if r.StatusCode != http.StatusBadRequest || r.problem() != idempotency.ProblemInvalidKey {
			t.Errorf("%s: answered %d %s, want 400 %s", name, r.StatusCode, r.problem(), idempotency.ProblemInvalidKey)
		}
		if len(values[0]) > 3 && strings.Contains(r.Text, strings.Trim(values[0], `"`)) {
			t.Errorf("%s: the answer repeats the key: %s", name, r.Text)
		}
	}
	missing := s.do(func(*http.Request) {}, http.MethodPost, "/", strings.NewReader("{}"))
	s.wantProblem(missing, http.StatusBadRequest, idempotency.ProblemMissingKey)
	s.wantEffects(0)
}

func TestKeysThatAreTaken(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{})
	spellings := [][]string{
		{"8e03978e-40d5-43dd-bc93-6894a57f9324", `"8e03978e-40d5-43dd-bc93-6894a57f9324"`,
			` "8e03978e-40d5-43dd-bc93-6894a57f9324" `},
		{strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`},
		{`"p"`, `"p";b=1`, `"p";b`, `"p" ; b="x;, \"y";c=?1; *d.e_f-g=:aGk=:`, `p`},
		{`"a, b;c"`}, {`"a \"quoted\" \\ key"`}, {`" a"`}, {`"a "`}, {"a=b:c/d+e"}, {"~"},
	}
	for _, same := range spellings {
		for i, key := range same {
			s.want(s.post(key), 201, "done", i > 0)
		}
	}
	s.wantEffects(len(spellings))
}

func TestMethods(t *testing.T) {
	t.Parallel()
	s := start(t, answering(200, "done"), idempotency.HandlerConfig{})
	for _, method := range []string{http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete, "LINK"} {
		r := s.do(func(*http.Request) {}, method, "/", nil)
		s.wantProblem(r, http.StatusBadRequest, idempotency.ProblemMissingKey)
		for _, replayed := range []bool{false, true} {
			s.wantProblem(s.send(method, "/", "key of "+method, ""), http.StatusBadRequest, idempotency.ProblemInvalidKey) // without quotes
			s.want(s.send(method, "/", `"key of `+method+`"`, ""), 200, "done", replayed)
		}
	}
	s.wantEffects(5)
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodOptions} {
		body := map[string]string{http.MethodHead: ""}
		text, ok := body[method]
		if !ok {
			text = "done"
		}
		for range 2 {
			s.want(s.send(method, "/", "key", ""), 200, text, false)
			s.want(s.send(method, "/", "no\x80key", ""), 200, text, false)
		}
	}
	s.wantEffects(5 + 3*4)
}

func TestKeyOptional(t *testing.T) {
	t.Parallel()
	s := start(t, answering(201, "done"), idempotency.HandlerConfig{KeyOptional: true})
	for range 2 {
		s.want(s.do(func(*http.Request) {}, http.MethodPost, "/", nil), 201, "done", false)
	}
	s.wantEffects(2)
	s.want(s.post("key"), 201, "done", false)
	s.want(s.post("key"), 201, "done", true)
	s.wantProblem(s.post("no key"), http.StatusBadRequest, idempotency.ProblemInvalidKey)
	s.wantEffects(3)
}
