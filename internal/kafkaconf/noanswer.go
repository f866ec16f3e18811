package kafkaconf

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"

	"github.com/IBM/sarama"
)

// NoAnswer says of each address why no broker has answered there.
type NoAnswer map[string]error

func (n NoAnswer) Error() string {
	var texts []string
	for _, addr := range slices.Sorted(maps.Keys(n)) {
		text := n[addr].Error()
		if !strings.Contains(text, addr) {
			text = addr + ": " + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the reasons, in the order of the addresses.
func (n NoAnswer) Unwrap() (errs []error) {
	for _, addr := range slices.Sorted(maps.Keys(n)) {
		errs = append(errs, n[addr])
	}
	return errs
}

// Remedy says what to do about an error that waiting does not cure, and is empty where it may. Of a NoAnswer, all
// reasons must be such. The client's configuration is named as the caller's users know it: "Net.SASL in Config.Sarama".
func Remedy(err error, config string) string {
	none, ok := errors.AsType[NoAnswer](err)
	if !ok {
		return remedy(err, config)
	}
	var remedies []string
	for _, err := range none.Unwrap() {
		r := remedy(err, config)
		if r == "" {
			return ""
		}
		if !slices.Contains(remedies, r) {
			remedies = append(remedies, r)
		}
	}
	return strings.Join(remedies, "; ")
}

func remedy(err error, config string) string {
	if errors.Is(err, sarama.ErrSASLAuthenticationFailed) {
		return "the brokers refuse the credentials, correct Net.SASL" + config
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		return "no such host is known, correct the brokers' addresses"
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok || isCertificate(err) {
		return "the broker's certificate is not accepted, correct RootCAs or ServerName of Net.TLS" + config +
			", or the brokers' addresses"
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return "the listener does not speak TLS, leave Net.TLS out" + config + ", or use another port"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" { // a TLS alert
		return "the broker refuses the TLS connection, correct Net.TLS" + config + ", its Certificates for example"
	}
	return ""
}

// isCertificate reports whether err is about a certificate, from a check that the user brings.
func isCertificate(err error) bool {
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return authority || host || invalid
}
