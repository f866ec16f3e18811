package topicwindow

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// scram is the client's side of RFC 5802, which sarama leaves to its users. It implements sarama.SCRAMClient.
type scram struct {
	hash  func() hash.Hash
	nonce func() string // a fresh one; replaced by a test

	password    string
	clientNonce string
	firstBare   string
	signature   []byte // that the server must show
	step        int
}

func scramHash(mechanism string) func() hash.Hash {
	switch mechanism {
	case "SCRAM-SHA-256":
		return sha256.New
	case "SCRAM-SHA-512":
		return sha512.New
	}
	return nil
}

var errSCRAM = errors.New("the server's answer is no SCRAM")

var saslName = strings.NewReplacer("=", "=3D", ",", "=2C")

// Begin implements sarama.SCRAMClient. Kafka knows no authorization ids. Passwords that are not ASCII are sent as they
// are, without the normalization of SASLprep.
func (s *scram) Begin(user, password, _ string) error {
	if s.nonce == nil {
		s.nonce = rand.Text
	}
	s.password, s.clientNonce = password, s.nonce()
	s.firstBare = "n=" + saslName.Replace(user) + ",r=" + s.clientNonce
	return nil
}

// Done implements sarama.SCRAMClient.
func (s *scram) Done() bool { return s.step == 3 }

// Step implements sarama.SCRAMClient.
func (s *scram) Step(challenge string) (string, error) {
	s.step++
	switch s.step {
	case 1:
		return "n,," + s.firstBare, nil
	case 2:
		return s.prove(challenge)
	default:
		return "", s.verify(challenge)
	}
}

// prove answers the server's salt with a proof that the password is known.
func (s *scram) prove(first string) (string, error) {
	f := fields(first)
	salt, err := base64.StdEncoding.DecodeString(f["s"])
	iterations, ierr := strconv.Atoi(f["i"])
	if err != nil || ierr != nil || iterations < 1 || !strings.HasPrefix(f["r"], s.clientNonce) {
		return "", errSCRAM
	}
	salted, err := pbkdf2.Key(s.hash, s.password, salt, iterations, s.hash().Size())
	if err != nil {
		return "", fmt.Errorf("SCRAM: %w", err)
	}
	clientKey := s.mac(salted, "Client Key")
	h := s.hash()
	h.Write(clientKey)
	final := "c=biws,r=" + f["r"]
	message := s.firstBare + "," + first + "," + final
	proof := s.mac(h.Sum(nil), message)
	for i := range proof {
		proof[i] ^= clientKey[i]
	}
	s.signature = s.mac(s.mac(salted, "Server Key"), message)
	return final + ",p=" + base64.StdEncoding.EncodeToString(proof), nil
}

// verify checks that the server knows the password too.
func (s *scram) verify(final string) error {
	f := fields(final)
	if _, failed := f["e"]; failed {
		return errors.New("the server refuses the credentials")
	}
	if got, err := base64.StdEncoding.DecodeString(f["v"]); err != nil || !hmac.Equal(got, s.signature) {
		return errSCRAM
	}
	return nil
}

func (s *scram) mac(key []byte, text string) []byte {
	m := hmac.New(s.hash, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// fields reads "r=...,s=...,i=...".
func fields(text string) map[string]string {
	f := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(part, "="); ok {
			f[name] = value
		}
	}
	return f
}
