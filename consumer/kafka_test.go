package consumer

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
)

// edits break each of the owned fields.
var edits = map[string]func(*sarama.Config){
	"Consumer.Return.Errors":             func(c *sarama.Config) { c.Consumer.Return.Errors = false },
	"Consumer.Offsets.AutoCommit.Enable": func(c *sarama.Config) { c.Consumer.Offsets.AutoCommit.Enable = false },
	"Consumer.Offsets.Initial":           func(c *sarama.Config) { c.Consumer.Offsets.Initial = sarama.OffsetNewest },
	"Consumer.Group.ResetInvalidOffsets": func(c *sarama.Config) { c.Consumer.Group.ResetInvalidOffsets = false },
	"Consumer.Group.Rebalance.Strategy":  func(c *sarama.Config) { c.Consumer.Group.Rebalance.Strategy = sarama.NewBalanceStrategySticky() },
	"Consumer.Group.InstanceId":          func(c *sarama.Config) { c.Consumer.Group.InstanceId = "i" },
	"Consumer.MaxProcessingTime":         func(c *sarama.Config) { c.Consumer.MaxProcessingTime = time.Minute },
	"Consumer.Fetch.Max":                 func(c *sarama.Config) { c.Consumer.Fetch.Max = 1 << 20 },
	"Consumer.Interceptors":              func(c *sarama.Config) { c.Consumer.Interceptors = []sarama.ConsumerInterceptor{nil} },
	"Metadata.AllowAutoTopicCreation":    func(c *sarama.Config) { c.Metadata.AllowAutoTopicCreation = true },
	"Consumer.Group.Rebalance.GroupStrategies": func(c *sarama.Config) {
		c.Consumer.Group.Rebalance.GroupStrategies = append(c.Consumer.Group.Rebalance.GroupStrategies,
			sarama.NewBalanceStrategySticky())
	},
}

func TestOwnedFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for _, f := range owned {
		edit := edits[f.Name]
		if edit == nil {
			t.Errorf("%s: no edit here that breaks it", f.Name)
			continue
		}
		var p problems
		saramaConfig(&p, Config{Group: "g", Sarama: edit}, &strategy{})
		if len(p) != 1 {
			t.Errorf("%s: %d errors, want one: %v", f.Name, len(p), errors.Join(p...))
			continue
		}
		text := p[0].Error()
		if f.Remedy == "" || !strings.Contains(text, "sets "+f.Name+",") || !strings.Contains(text, f.Remedy) {
			t.Errorf("%s: says %q", f.Name, text)
		}
	}
	if len(edits) != len(owned) {
		t.Errorf("%d fields are broken here, %d are owned", len(edits), len(owned))
	}
}

// What the runner relies on, whatever the library's defaults become.
func TestValuesThatCorrectnessRestsOn(t *testing.T) {
	t.Parallel()
	c := newSaramaConfig("g", &strategy{})
	if c.Consumer.Offsets.Initial != sarama.OffsetOldest || !c.Consumer.Group.ResetInvalidOffsets {
		t.Error("messages without a valid committed offset would be skipped")
	}
	if c.Consumer.IsolationLevel != sarama.ReadCommitted {
		t.Error("what producers have aborted would take effect")
	}
	if c.Metadata.AllowAutoTopicCreation {
		t.Error("a misspelt topic would be created")
	}
	if !c.Consumer.Return.Errors || !c.Consumer.Offsets.AutoCommit.Enable {
		t.Error("errors are not returned, or marks are not committed")
	}
	if names := strategies(c).([]string); len(names) != 1 || names[0] != "range" {
		t.Errorf("strategies %v", names)
	}
	if c.Consumer.Fetch.Max != 0 || c.Consumer.MaxProcessingTime != 100*time.Millisecond {
		t.Errorf("Fetch.Max %d, MaxProcessingTime %v", c.Consumer.Fetch.Max, c.Consumer.MaxProcessingTime)
	}
	var p problems
	if saramaConfig(&p, Config{Group: "g"}, &strategy{}); len(p) > 0 {
		t.Errorf("the defaults are refused: %v", errors.Join(p...))
	}
}

func TestClientSettingsAreTheUsers(t *testing.T) {
	t.Parallel()
	var p problems
	c := saramaConfig(&p, Config{Group: "g", Sarama: func(c *sarama.Config) {
		c.Net.TLS.Enable = true
		c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "user", "secret"
		c.ClientID, c.RackID = "mine", "rack"
		c.Version = sarama.V2_8_0_0
		c.Consumer.MaxWaitTime = time.Second
		c.Consumer.Offsets.AutoCommit.Interval = 5 * time.Second
		c.Consumer.IsolationLevel = sarama.ReadUncommitted
		c.Consumer.Group.Session.Timeout = time.Minute
	}}, &strategy{})
	if len(p) > 0 {
		t.Fatal(errors.Join(p...))
	}
	if !c.Net.TLS.Enable || c.ClientID != "mine" || c.Consumer.IsolationLevel != sarama.ReadUncommitted {
		t.Error("the edits are lost")
	}
}

func TestTimeoutsThatContradict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name                                string
		heartbeat, rebalance, read, session time.Duration
		want                                []string // the smaller of each pair
	}{
		{"defaults", heartbeatInterval, rebalanceTimeout, readTimeout, sessionTimeout, nil},
		{"just right", 499, 999, 1000, 1001, nil},
		{"heartbeat", 5, 10, 12, 20, []string{"2 x Consumer.Group.Heartbeat.Interval is 10ms and Consumer.Group.Rebalance.Timeout is 10ms"}},
		{"rebalance", 1, 12, 12, 20, []string{"Consumer.Group.Rebalance.Timeout is 12ms and Net.ReadTimeout is 12ms"}},
		{"read", 1, 10, 20, 20, []string{"Net.ReadTimeout is 20ms and Consumer.Group.Session.Timeout is 20ms"}},
		{"all", 30, 30, 30, 31, []string{"2 x Consumer.Group.Heartbeat.Interval is 60ms",
			"Consumer.Group.Rebalance.Timeout is 30ms"}},
	} {
		var p problems
		saramaConfig(&p, Config{Group: "g", Sarama: func(c *sarama.Config) {
			unit := time.Millisecond
			if test.name == "defaults" {
				unit = 1
			}
			c.Consumer.Group.Heartbeat.Interval = test.heartbeat * unit
			c.Consumer.Group.Rebalance.Timeout = test.rebalance * unit
			c.Net.ReadTimeout = test.read * unit
			c.Consumer.Group.Session.Timeout = test.session * unit
		}}, &strategy{})
		if len(p) != len(test.want) {
			t.Errorf("%s: %d errors, want %d: %v", test.name, len(p), len(test.want), errors.Join(p...))
			continue
		}
		for i, text := range test.want {
			if got := p[i].Error(); !strings.Contains(got, text) || !strings.Contains(got, "make the first smaller") {
				t.Errorf("%s: says %q, want %q", test.name, got, text)
			}
		}
	}
}

// The default drain is what the default group leaves for it, as its documentation says.
func TestDrainFitsTheRebalance(t *testing.T) {
	t.Parallel()
	c := newSaramaConfig("g", &strategy{})
	if got := revokeBudget(c); got != DefaultDrainTimeout {
		t.Errorf("the budget is %v, DefaultDrainTimeout is %v", got, DefaultDrainTimeout)
	}
	c.Consumer.Group.Rebalance.Timeout, c.Consumer.Group.Heartbeat.Interval = 5*time.Second, 300*time.Millisecond
	if got := revokeBudget(c); got != 4400*time.Millisecond {
		t.Errorf("the budget is %v, want 4.4 s", got)
	}
}

func TestClientID(t *testing.T) {
	t.Parallel()
	for group, want := range map[string]string{
		"":             "",
		"billing":      "billing",
		"a b\tc\n":     "a_b_c_",
		"größe":        "gr____e",
		"x/y:z~!":      "x/y:z~!",
		"nul\x00\x7f.": "nul__.",
	} {
		if got := clientID(group); got != want {
			t.Errorf("clientID(%q) = %q, want %q", group, got, want)
		}
	}
}

func TestPartitionName(t *testing.T) {
	t.Parallel()
	if got := partitionName("orders", 3); got != "orders[3]" {
		t.Errorf("got %q", got)
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		err    error
		remedy string // empty if trying again may cure it
	}{
		{sarama.ErrGroupAuthorizationFailed, "READ on the group"},
		{sarama.ErrTopicAuthorizationFailed, "READ and DESCRIBE on the topics"},
		{sarama.ErrSASLAuthenticationFailed, "Net.SASL in Config.Sarama"},
		{sarama.ErrFencedInstancedId, "instance id of its own"},
		{sarama.ErrInconsistentGroupProtocol, "no strategy in common"},
		{sarama.ConfigurationError("no"), "correct Config.Sarama"},
		{nil, ""},
		{errors.New("i/o timeout"), ""},
		{sarama.ErrOutOfBrokers, ""},
		{sarama.ErrUnknownMemberId, ""},
		{sarama.ErrIllegalGeneration, ""},
		{sarama.ErrRebalanceInProgress, ""},
		{sarama.ErrNotCoordinatorForConsumer, ""},
		{sarama.ErrConsumerCoordinatorNotAvailable, ""},
		{sarama.ErrOffsetsLoadInProgress, ""},
		{sarama.ErrUnknownTopicOrPartition, ""},
		{sarama.ErrClosedClient, ""},
	} {
		for _, err := range []error{test.err, wrapped(test.err)} {
			got := refused(err, "billing")
			if (got != nil) != (test.remedy != "") {
				t.Errorf("%v: refused says %v", err, got)
				continue
			}
			if got == nil {
				continue
			}
			if !errors.Is(got, test.err) || !strings.Contains(got.Error(), `group "billing"`) ||
				!strings.Contains(got.Error(), test.remedy) {
				t.Errorf("%v: says %q, want %q in it", err, got, test.remedy)
			}
		}
	}
}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("join: %w", errors.Join(errors.New("also"), err))
}

// Settings that would ask the brokers without a pause are refused, each by name; the smallest that are sound are taken.
func TestSettingsThatMakeLoops(t *testing.T) {
	t.Parallel()
	for _, f := range []struct {
		name string
		set  func(*sarama.Config, time.Duration)
		ok   time.Duration
	}{
		{"Metadata.RefreshFrequency", func(c *sarama.Config, d time.Duration) { c.Metadata.RefreshFrequency = d },
			leastPeriod},
		{"Metadata.Retry.Backoff", func(c *sarama.Config, d time.Duration) { c.Metadata.Retry.Backoff = d }, leastBackoff},
		{"Consumer.Retry.Backoff", func(c *sarama.Config, d time.Duration) { c.Consumer.Retry.Backoff = d }, leastBackoff},
		{"Consumer.Group.Rebalance.Retry.Backoff",
			func(c *sarama.Config, d time.Duration) { c.Consumer.Group.Rebalance.Retry.Backoff = d }, leastBackoff},
	} {
		for d, want := range map[time.Duration]int{0: 1, f.ok - 1: 1, f.ok: 0} {
			var p problems
			saramaConfig(&p, Config{Group: "g", Sarama: func(c *sarama.Config) { f.set(c, d) }}, &strategy{})
			if len(p) != want || want > 0 && !strings.Contains(p[0].Error(), "sets "+f.name+" to "+d.String()+": set at least "+
				f.ok.String()) {
				t.Errorf("%s %v: %v", f.name, d, errors.Join(p...))
			}
		}
	}
}
