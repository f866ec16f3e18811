package status

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/einmal-go/einmal/internal/redact"
)

// maxReport bounds what is read of an answer, in bytes: 10,000 partitions have about 6 MB.
const maxReport = 32 << 20

// client follows no redirect to another host or port: whoever is there would get the token.
var client = &http.Client{CheckRedirect: func(req *http.Request, via []*http.Request) error {
	if first := via[0].URL; req.URL.Scheme != first.Scheme || req.URL.Host != first.Host {
		return fmt.Errorf("it redirects to %s, which gets no user and no token: if that is right, name it instead",
			redact.URL(req.URL))
	}
	if len(via) >= 10 {
		return errors.New("it redirects without an end")
	}
	return nil
}}

// Fetch asks the process at a URL for its status, which Read reads. A user and a password in the URL are sent, and
// token, if it is not empty, as a bearer token. It follows no redirect to another host. Its errors repeat no secret,
// and say what to look at.
func Fetch(ctx context.Context, at *url.URL, token string) ([]byte, error) {
	where := redact.URL(at)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("%s is no URL: want http://host:port/path, where the service serves its status", where)
	}
	req.Header.Set("Accept", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, unanswered(where, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxReport+1))
	switch {
	case err != nil:
		return nil, unanswered(where, err)
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return nil, fmt.Errorf("%s answers %s: give a user and a password in the URL, or a token", where, res.Status)
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s: is it the path at which the service serves package status?", where, res.Status)
	case len(text) > maxReport:
		return nil, fmt.Errorf("%s answers with more than %d bytes: it is no status", where, maxReport)
	}
	if kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type")); !json.Valid(text) {
		return nil, fmt.Errorf("%s answers with %q, which is no JSON: is it the path at which the service serves package status?", where, redact.Text(kind, 100))
	}
	return text, nil
}

func unanswered(where string, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL, which can have a secret
	}
	return fmt.Errorf("%s does not answer: %w: does the service run, and is the port right?", where, err)
}

// Read reads what Handler has written. The error says what is wrong where it is no Report, or one of another Format.
func Read(text []byte) (*Report, error) {
	var r Report
	if err := json.Unmarshal(text, &r); err != nil || r.Format == 0 || r.Sections == nil {
		return nil, errors.New("the answer is JSON, but no status of einmal: is it the path at which the service serves package status?")
	}
	if r.Format != Format {
		return nil, fmt.Errorf("the status has format %d, and this binary reads %d: install the version of einmal that the service has", r.Format, Format)
	}
	return &r, nil
}
