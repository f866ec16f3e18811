package redact_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/einmal-go/einmal/internal/redact"
)

const limit = 1024

// spellings are ways in which a secret, hunter2-9f8e7d, stands in texts of errors.
var spellings = []string{
	"password=hunter2-9f8e7d", "password: hunter2-9f8e7d", "Password = hunter2-9f8e7d", "PASSWORD=hunter2-9f8e7d", "PGPASSWORD=hunter2-9f8e7d",
	"db_password=hunter2-9f8e7d", "DB-PASSWORD=hunter2-9f8e7d", "dbPassword=hunter2-9f8e7d", "passwd=hunter2-9f8e7d", "passphrase: hunter2-9f8e7d",
	"pass=hunter2-9f8e7d", "pwd=hunter2-9f8e7d", "MYSQL_PWD=hunter2-9f8e7d", `"password":"hunter2-9f8e7d"`, `{\"password\":\"hunter2-9f8e7d\"}`,
	`{"password" : "two words hunter2-9f8e7d"}`, "password='hunter2-9f8e7d'", "PASSWORD 'hunter2-9f8e7d'", "password=>hunter2-9f8e7d", "password:=hunter2-9f8e7d",
	"<password>hunter2-9f8e7d</password>", "password%3Dhunter2-9f8e7d", "--password hunter2-9f8e7d", "--password=hunter2-9f8e7d", "{User:app Password:hunter2-9f8e7d}",
	"secret=hunter2-9f8e7d", "client_secret=hunter2-9f8e7d", "clientSecret: hunter2-9f8e7d", "AWS_SECRET_ACCESS_KEY=hunter2-9f8e7d", "secretKey=hunter2-9f8e7d",
	"token=hunter2-9f8e7d", "access_token=hunter2-9f8e7d", "refresh_token=hunter2-9f8e7d", "id_token: hunter2-9f8e7d", "x-auth-token: hunter2-9f8e7d",
	"csrfToken=hunter2-9f8e7d", "GET /x?a=1&access_token=hunter2-9f8e7d&b=2", "api_key=hunter2-9f8e7d", "apikey=hunter2-9f8e7d", "X-Api-Key: hunter2-9f8e7d",
	"api key: hunter2-9f8e7d", "access_key=hunter2-9f8e7d", "private_key=hunter2-9f8e7d", "AccountKey=hunter2-9f8e7d==;EndpointSuffix=x", "sig=hunter2-9f8e7d", "X-Amz-Signature=hunter2-9f8e7d",
	"session_id=hunter2-9f8e7d", "sid=hunter2-9f8e7d", "credentials: hunter2-9f8e7d", "Authorization: Bearer hunter2-9f8e7d", "authorization: Basic hunter2-9f8e7d",
	`Authorization: Digest username="app", response="hunter2-9f8e7d"`, "Proxy-Authorization: NTLM hunter2-9f8e7d", "Cookie: a=b; s=hunter2-9f8e7d", "Set-Cookie: s=hunter2-9f8e7d; Path=/",
	"map[Authorization:[Bearer hunter2-9f8e7d] Accept:[x]]", "map[Cookie:[a=b; s=hunter2-9f8e7d]]", "sent bearer hunter2-9f8e7d", "sent Basic hunter2-9f8e7d",
	"postgres://app:hunter2-9f8e7d@db:5432/x", "postgres://app:hunter2@hunter2-9f8e7d@db/x", "postgres://app:a/hunter2-9f8e7d@db/x", "postgres://:hunter2-9f8e7d@db/x",
	"postgres://app:a?b#hunter2-9f8e7d@db", "https://app:hunter2-9f8e7d@host/path", "https://hunter2-9f8e7d@host/path", "amqp://a:b@h1,amqp://c:hunter2-9f8e7d@h2",
	"app:hunter2-9f8e7d@tcp(db:3306)/x", "app:a@b/hunter2-9f8e7d@tcp(db:3306)/x", "eyJhbGciOiJI.eyJzdWIiOiIx.hunter2-9f8e7d", "got ghp_hunter2-9f8e7d", "AKIAHUNTER29F8E7D",
	"-----BEGIN RSA PRIVATE KEY-----\nhunter2-9f8e7d\n-----END RSA PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\nhunter2-9f8e7d",
	`password="two \" hunter2-9f8e7d"`, "password='a hunter2-9f8e7d", "pin: hunter2-9f8e7d", "jwt=hunter2-9f8e7d",
}

func TestSpellingsOfSecrets(t *testing.T) {
	t.Parallel()
	if len(spellings) < 60 {
		t.Errorf("only %d spellings", len(spellings))
	}
	for _, text := range spellings {
		for _, around := range []string{"%s", "dial: %s: refused", "(%s)", "a\n%s\nb", `{"error": "%s"}`} {
			whole := fmt.Sprintf(around, text)
			for from, got := range map[string]string{"Text": redact.Text(whole, limit), "Message": redact.Message(whole, [][]byte{[]byte("x")}, limit), "Error": redact.Error(errors.New(whole)).Error()} {
				if strings.Contains(got, "9f8e7d") || strings.Contains(got, "HUNTER") || !strings.Contains(got, redact.Masked) {
					t.Errorf("%s(%q) is %q", from, whole, got)
				}
			}
		}
	}
}

// What is no secret stays readable.
func TestTextsWithoutSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "no such account", `password authentication failed for user "app" (SQLSTATE 28P01)`, "http://host:8080/path: connection refused", "http://host:8080/@scope/pkg",
		"http://[::1]:8080/x", "write to a@b.example failed", "orders[3]@17 is open for 3s", "the access token has expired", "postgres://app@db:5432/x: refused",
		"dial tcp 10.0.0.1:9092: connect: connection refused", "duplicate key value violates unique constraint \"charge_pkey\"", "tokens", "file:///tmp/x", "12:30 tomorrow",
	} {
		if got := redact.Text(text, limit); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	u, err := url.Parse("https://app:hunter2@host:1/p?token=x#y")
	if err != nil {
		t.Fatal(err)
	}
	if got := redact.URL(u); got != "https://host:1/p" {
		t.Error(got)
	}
}

func TestErrorIsStillTheError(t *testing.T) {
	t.Parallel()
	inner := errors.New("password=x")
	if err := redact.Error(inner); !errors.Is(err, inner) || err.Error() != "password=***" {
		t.Error(err)
	}
	if err := redact.Error(nil); err != nil {
		t.Error(err)
	}
}

var nasty = "a\x1b[31mb\x9bc\u009bd\u202ee\u2066f\u200bg\u2028h\ni\x00j\rk\U000e0041l"

func TestLine(t *testing.T) {
	t.Parallel()
	got := redact.Line(nasty)
	if i := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
	if got := redact.Line("Zürich Łódź 1 €"); got != "Zürich Łódź 1 €" {
		t.Error(got)
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	was := map[string]any{"k\u202e": nasty}
	text, err := json.Marshal(was)
	if err != nil {
		t.Fatal(err)
	}
	got := redact.JSON(text)
	if i := bytes.IndexFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q", got)
	}
	var before, after any
	if err := errors.Join(json.Unmarshal(text, &before), json.Unmarshal(got, &after)); err != nil || !reflect.DeepEqual(before, after) {
		t.Errorf("%v: %s", err, got)
	}
}

// A text and a message of any size and shape take a time that grows with their sizes: what a stranger sends does not occupy a processor.
func TestTimeIsLinear(t *testing.T) {
	t.Parallel()
	headers := make([][]byte, 200_000)
	for i := range headers {
		headers[i] = fmt.Appendf(nil, "value%d", i)
	}
	large := []byte(strings.Repeat("4111 1111 1111 1111 ", 500_000)) // 10 MB
	for name, c := range map[string]struct {
		text  string
		parts [][]byte
	}{
		"900 kB and 200,000 headers": {strings.Repeat("value1 value2 ", 64_000), headers},
		"repeats 10 MB":              {string(large), [][]byte{large}},
		"quotes":                     {strings.Repeat(`"a`, 450_000), [][]byte{large}},
		"escaped quotes":             {strings.Repeat(`\"a`, 300_000), [][]byte{large}},
		"names":                      {strings.Repeat("password", 100_000), headers},
		"names with open quotes":     {strings.Repeat(`password="`, 100_000), headers},
		"names with brackets":        {strings.Repeat(`token:[`, 100_000), headers},
		"URLs":                       {strings.Repeat("a://b:c", 100_000), headers},
		"URLs with @":                {strings.Repeat("a://b:c@", 100_000), headers},
		"blanks":                     {"password" + strings.Repeat(" ", 900_000) + "=x", headers},
		"keys":                       {strings.Repeat("-----BEGIN PRIVATE KEY-----", 30_000), headers},
		"addresses":                  {strings.Repeat(":a@tcp(", 100_000), headers},
	} {
		start := time.Now()
		got := redact.Message(c.text, c.parts, 2048)
		if took := time.Since(start); len(got) > 2048 || took > 5*time.Second {
			t.Errorf("%s: %d bytes after %v", name, len(got), took)
		} else {
			t.Logf("%s: %v", name, took)
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, s := range spellings {
		f.Add(s, "some value of a message", "key-1")
	}
	f.Add(nasty, nasty, `"\"`)
	f.Fuzz(func(t *testing.T, text, value, key string) {
		got := redact.Message(text, [][]byte{[]byte(value), []byte(key)}, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
			t.Errorf("%d bytes: %q", len(got), got)
		}
		if len(value) >= 4 && utf8.ValidString(text) && !strings.ContainsAny(text+value, "*\x00") && strings.Contains(got, value) {
			t.Errorf("%q holds %q", got, value)
		}
		_ = redact.Line(text)
	})
}
