package consumer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/einmal-go/einmal/consumer"
)

// validating is a link that judges the links around it.
type validating struct {
	consumer.Handler
	name     string
	branches [][]consumer.Handler
	validate func(outside []consumer.Handler) error
}

func (v *validating) Validate(outside []consumer.Handler) error { return v.validate(outside) }
func (v *validating) Branches() [][]consumer.Handler            { return v.branches }

// Each link is asked once, with all links around it, those outside of its branch too; all errors are reported.
func TestValidators(t *testing.T) {
	t.Parallel()
	var asked []string
	link := func(name string, branches ...[]consumer.Handler) *validating {
		v := &validating{Handler: nop, name: name, branches: branches}
		v.validate = func(outside []consumer.Handler) error {
			var names []string
			for _, h := range outside {
				names = append(names, h.(*validating).name)
			}
			asked = append(asked, name+" in "+strings.Join(names, " "))
			return errors.New("wrong: " + name)
		}
		return v
	}
	around := func(v *validating) consumer.Middleware {
		return func(consumer.Handler) consumer.Handler { return v }
	}
	cfg := valid()
	cfg.Middleware = []consumer.Middleware{around(link("a"))}
	cfg.Topics["orders"] = consumer.Topic{
		Middleware: []consumer.Middleware{around(link("b"))},
		Handler: link("c",
			[]consumer.Handler{link("d"), link("e", []consumer.Handler{link("f")})},
			[]consumer.Handler{link("g")},
		),
	}
	_, err := consumer.New(cfg)
	all := configErrors(t, err)
	want := []string{"a in ", "b in a", "c in a b", "d in a b c", "e in a b c d", "f in a b c d e", "g in a b c"}
	if !slices.Equal(asked, want) {
		t.Errorf("asked %q, want %q", asked, want)
	}
	for i, e := range all {
		if e.Problem != "wrong: "+want[i][:1] || len(all) != len(want) {
			t.Errorf("error %d of %d: %v", i, len(all), e)
		}
	}
}

func TestCompose(t *testing.T) {
	t.Parallel()
	links, err := consumer.Compose(nop, []consumer.Middleware{linkOf(consumer.LinkTracing), linkOf(consumer.LinkRetry)})
	if err != nil || len(links) != 3 || links[0].(*linked).link != consumer.LinkTracing ||
		links[1].(*linked).link != consumer.LinkRetry {
		t.Fatalf("links %v, %v", links, err)
	}
	if links[0].(*linked).Handler != links[1] {
		t.Error("the outer link does not call the inner one")
	}
	if links, err := consumer.Compose(nop, []consumer.Middleware{nil}); links != nil || err == nil {
		t.Errorf("a nil middleware: %v, %v", links, err)
	}
}

func TestDeliverWithoutABroker(t *testing.T) {
	t.Parallel()
	cfg := valid()
	cfg.Topics["orders"] = consumer.Topic{Handler: consumer.HandlerFunc(func(_ context.Context, msg *consumer.Message) error {
		if msg.Attempt < 3 {
			return errHandler
		}
		return nil
	})}
	c, err := consumer.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context()); err != nil {
		t.Error(err)
	}
	if d, err := c.Deliver(&consumer.Message{Topic: "order"}); d != nil || err == nil ||
		!strings.Contains(err.Error(), `"order"`) {
		t.Errorf("a topic that is not there: %v, %v", d, err)
	}
	d, err := c.Deliver(&consumer.Message{Topic: "orders", TopicID: consumer.TopicID{1}})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 3; i++ {
		a := d.Attempt(t.Context())
		if a.Again != (i < 3) || (a.Err == nil) != (i == 3) || a.Message.Attempt != i ||
			a.Message.TopicID != (consumer.TopicID{1}) {
			t.Errorf("attempt %d: %+v of %+v", i, a, a.Message)
		}
	}
}
