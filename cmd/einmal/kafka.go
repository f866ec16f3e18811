package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/einmal-go/einmal/internal/topicwindow"
)

// The environment's names for what reaches the brokers.
const (
	envBrokers       = "EINMAL_KAFKA_BROKERS"
	envKafkaUser     = "EINMAL_KAFKA_USER"
	envKafkaPassword = "EINMAL_KAFKA_PASSWORD" //nolint:gosec // the name of it
)

// kafkaFlags say which cluster is meant, and how it is reached.
type kafkaFlags struct {
	brokers, sasl, ca, cert, key string
	tls, uncommitted             bool
}

func (f *kafkaFlags) add(flags *flag.FlagSet) {
	flags.StringVar(&f.brokers, "brokers", "", "the `addresses` of brokers, host:port,host:port. By default what "+
		envBrokers+" says")
	flags.BoolVar(&f.tls, "tls", false, "reach the brokers by TLS; the flags below imply it")
	flags.StringVar(&f.ca, "tls-ca", "", "a `file` with the certificates of authorities (PEM). By default the system's")
	flags.StringVar(&f.cert, "tls-cert", "", "a `file` with the client's certificate (PEM)")
	flags.StringVar(&f.key, "tls-key", "", "a `file` with its key (PEM)")
	flags.StringVar(&f.sasl, "sasl", "", "the SASL `mechanism`: "+strings.Join(mechanisms, ", ")+
		". User and password are in "+envKafkaUser+" and "+envKafkaPassword)
	flags.BoolVar(&f.uncommitted, "uncommitted", false,
		"read what producers have aborted, or not committed yet, too, as a service whose isolation level is ReadUncommitted does")
}

var mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// addresses are those of the brokers. A text with an @ is not repeated: there may be a password before it.
func (f *kafkaFlags) addresses(env *environment) ([]string, error) {
	text := cmp.Or(f.brokers, env.getenv(envBrokers))
	if text == "" {
		return nil, usagef("which cluster? Set -brokers or %s", envBrokers)
	}
	if strings.ContainsAny(text, "@/ ") {
		return nil, usagef("the brokers are no addresses: want host:port,host:port, without a scheme, a user or a password")
	}
	return strings.Split(text, ","), nil
}

// security reads the files and the environment. It says so where the password would be sent in clear text.
func (f *kafkaFlags) security(env *environment) (s topicwindow.Security, err error) {
	defer func() {
		if says := s.OpenPassword(); says != "" && err == nil {
			fmt.Fprintf(env.stderr, "einmal: %s\n", says)
		}
	}()
	if f.sasl != "" {
		if !slices.Contains(mechanisms, f.sasl) {
			return s, usagef("-sasl is one of %s", strings.Join(mechanisms, ", "))
		}
		s.Mechanism, s.User, s.Password = f.sasl, env.getenv(envKafkaUser), env.getenv(envKafkaPassword)
		if s.User == "" || s.Password == "" {
			return s, usagef("-sasl needs %s and %s in the environment", envKafkaUser, envKafkaPassword)
		}
	}
	if !f.tls && f.ca == "" && f.cert == "" && f.key == "" {
		return s, nil
	}
	s.TLS, err = f.certificates()
	return s, err
}

// certificates reads the files of TLS.
func (f *kafkaFlags) certificates() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("-tls-ca: %w", err)
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("-tls-ca: the file has no certificate in PEM")
		}
	}
	if f.cert != "" || f.key != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("-tls-cert, -tls-key: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// dial reaches the cluster. The caller closes it.
func (f *kafkaFlags) dial(ctx context.Context, env *environment) (*topicwindow.Cluster, error) {
	brokers, err := f.addresses(env)
	if err != nil {
		return nil, err
	}
	security, err := f.security(env)
	if err != nil {
		return nil, err
	}
	security.Uncommitted = f.uncommitted
	return topicwindow.Dial(ctx, brokers, security)
}
