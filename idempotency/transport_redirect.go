package idempotency

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Redirected is the error of a call that was answered with a redirect which must not be followed. The answer to what an
// http.Client would send instead says nothing about the call: after 301, 302 and 303 that is a GET without key and
// body; after 307 and 308 it is the call, with key and body, for somebody else to read. Whether the call has had an
// effect is not known: call the address that answers by itself, with the same key.
type Redirected struct {
	Status   int
	Location *url.URL // whole; it may carry secrets
}

func (e *Redirected) Error() string {
	to := url.URL{Scheme: e.Location.Scheme, Host: e.Location.Host, Path: e.Location.Path} // a query may have secrets
	what := "net/http would follow it by a GET without key and body: call the address that answers by itself"
	if keepsCall(e.Status) {
		what = "the key and the body are for the host that was called: call the other one, or name it in TransportConfig.RedirectHosts"
	}
	return fmt.Sprintf("the call was answered with a redirect, %d %s, to %s, which is not followed: %s", e.Status,
		http.StatusText(e.Status), to.String(), what)
}

// redirect returns where an http.Client would go after the answer, or nil if it would not go anywhere.
func redirect(res *http.Response, from *url.URL) *url.URL {
	switch res.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect,
		http.StatusPermanentRedirect:
	default:
		return nil
	}
	location := res.Header.Get("Location")
	if location == "" {
		return nil
	}
	to, err := from.Parse(location)
	if err != nil {
		return nil // of which http.Client makes an error
	}
	return to
}

// keepsCall reports whether a redirect keeps method and body.
func keepsCall(status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
}

// mayFollow reports whether the key and the body of a request to one address may be sent to another one.
func (c *TransportConfig) mayFollow(from, to *url.URL) bool {
	switch {
	case to.Scheme != from.Scheme && (from.Scheme != "http" || to.Scheme != "https"):
		return false
	case to.Scheme == from.Scheme && hostOf(to) == hostOf(from):
		return true
	}
	return slices.ContainsFunc(c.RedirectHosts, func(host string) bool {
		return hostOf(&url.URL{Scheme: to.Scheme, Host: host}) == hostOf(to)
	})
}

// hostOf is host and port in one spelling.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

// followed is the key of a call whose redirect is being followed.
type followed struct{}

// follow returns the answer that an http.Client may see of a, or a *Redirected.
func (c *call) follow(res *http.Response) (*http.Response, error) {
	to := redirect(res, c.req.URL)
	switch {
	case to == nil || safeMethod(c.req.Method):
		return res, nil
	case !keepsCall(res.StatusCode) || !c.cfg.mayFollow(c.req.URL, to):
		_ = res.Body.Close()
		return nil, &Redirected{Status: res.StatusCode, Location: to}
	case !c.fits(0):
		_ = res.Body.Close()
		return nil, &GaveUp{Attempts: c.attempts, Err: timeoutError(c.cfg.Budget)}
	}
	res.Request = c.req.WithContext(context.WithValue(c.req.Context(), followed{}, c)) // which the next request finds by its Response
	return res, nil
}

// before returns the call that has led to req by a redirect, or nil.
func before(req *http.Request) *call {
	if req.Response == nil || req.Response.Request == nil {
		return nil
	}
	c, _ := req.Response.Request.Context().Value(followed{}).(*call)
	return c
}
