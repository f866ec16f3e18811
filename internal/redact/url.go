package redact

import "net/url"

// URL returns scheme, host and path of u. Its user, its query and its fragment may hold a secret.
func URL(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
