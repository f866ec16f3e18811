package topicwindow

import (
	"crypto/sha256"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/einmal-go/einmal/internal/servers/serverstest"
)

func TestMain(m *testing.M) { serverstest.Main(m) }

// The example of RFC 7677.
func TestScram(t *testing.T) {
	t.Parallel()
	s := &scram{hash: sha256.New, nonce: func() string { return "rOprNGfwEbeRWgbNEkqO" }}
	if err := s.Begin("user", "pencil", ""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ challenge, want string }{
		{"", "n,,n=user,r=rOprNGfwEbeRWgbNEkqO"},
		{"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
			"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="},
		{"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", ""},
	} {
		if got, err := s.Step(c.challenge); err != nil || got != c.want {
			t.Fatalf("Step(%q) = %q, %v", c.challenge, got, err)
		}
	}
	if !s.Done() {
		t.Error("it is not done")
	}
}

// A server that does not know the password, or speaks something else, is no server.
func TestScramRefuses(t *testing.T) {
	t.Parallel()
	const first = "r=abcd,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
	for _, challenges := range [][]string{
		{"", ""},
		{"", "r=other,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"},
		{"", "r=abcd,s=?,i=4096"},
		{"", "r=abcd,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0"},
		{"", first, "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="},
		{"", first, "e=invalid-proof"},
		{"", first, "hello"},
	} {
		s := &scram{hash: sha256.New, nonce: func() string { return "abc" }}
		if err := s.Begin("user", "pencil", ""); err != nil {
			t.Fatal(err)
		}
		var err error
		for _, c := range challenges {
			_, err = s.Step(c)
		}
		if err == nil {
			t.Errorf("%q are accepted", challenges)
		}
	}
}

// Each mechanism reaches a broker that asks for it.
func TestDialWithSASL(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			t.Parallel()
			b := serverstest.InProcess(t, kfake.NumBrokers(1), kfake.EnableSASL(),
				kfake.Superuser(mechanism, "billing", "a=b,c"), kfake.SeedTopics(2, "orders"))
			c, err := Dial(t.Context(), b.Addrs, Security{Mechanism: mechanism, User: "billing", Password: "a=b,c"})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			r, err := c.Topic("orders")
			if err != nil {
				t.Fatal(err)
			}
			if ps, err := r.Partitions(); err != nil || len(ps) != 2 || r.TopicID() == [16]byte{} {
				t.Errorf("%v, %v", ps, err)
			}
		})
	}
}
