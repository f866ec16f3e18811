package servers

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// listener is one more of a node from jars. The zero value is none.
type listener struct {
	name, security, port string
	properties           []string
}

// address is what is added to the listeners' addresses.
func (l listener) address() string {
	if l.name == "" {
		return ""
	}
	return "," + l.name + "://127.0.0.1:" + l.port
}

// protocol is what is added to the listeners' protocols.
func (l listener) protocol() string {
	if l.name == "" {
		return ""
	}
	return "," + l.name + ":" + l.security
}

// GuardedKafka is an Apache Kafka with ACLs. Who comes by Addrs may do everything.
type GuardedKafka struct {
	*Kafka
	Guarded []string // where clients have to say who they are, by SASL PLAIN, and may do what ACLs allow
}

// StartGuardedKafka starts one from the jars in EINMAL_KAFKA_JARS, with users of one password. It has no ACL.
func StartGuardedKafka(ctx context.Context, password string, users ...string) (*GuardedKafka, error) {
	if os.Getenv(EnvKafkaJars) == "" {
		return nil, fmt.Errorf("%s is not set", EnvKafkaJars)
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	var jaas strings.Builder
	jaas.WriteString("org.apache.kafka.common.security.plain.PlainLoginModule required")
	for _, user := range users {
		fmt.Fprintf(&jaas, " user_%s=%q", user, password)
	}
	k, err := localKafkaWith(ctx, &listener{name: "GUARDED", security: "SASL_PLAINTEXT", port: port, properties: []string{
		"listener.name.guarded.sasl.enabled.mechanisms=PLAIN",
		"listener.name.guarded.plain.sasl.jaas.config=" + jaas.String() + ";",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"super.users=User:ANONYMOUS",
	}})
	if err != nil {
		return nil, err
	}
	return &GuardedKafka{k, []string{"127.0.0.1:" + port}}, nil
}
