package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

// groupTimeout bounds how long the look at the group delays the start.
const groupTimeout = 5 * time.Second

// checkGroup looks at the group that this member is about to join. The error is about one that it cannot join. What may
// be refused, but need not be, is a warning, and so is a group that the brokers do not tell about: joining it decides.
func (c *Consumer) checkGroup(ctx context.Context, client sarama.Client) error {
	ctx, cancel := context.WithTimeout(ctx, groupTimeout)
	defer cancel()
	group, err := bounded(ctx, 0, func() (*sarama.GroupDescription, error) { return describeGroup(client, c.cfg.Group) },
		func(*sarama.GroupDescription) {})
	log := c.cfg.Logger.With(attrGroup, c.cfg.Group)
	switch {
	case errors.Is(err, sarama.ErrGroupAuthorizationFailed):
		log.Warn("einmal: the group was not looked at, because the user may not DESCRIBE it; READ on the group, which is needed to join it, usually includes that")
		return nil
	case err != nil:
		log.Debug("einmal: the group was not looked at", slog.Any("error", err)) // joining it has more patience
		return nil
	case group.ProtocolType != "" && group.ProtocolType != consumerProtocol:
		return fmt.Errorf("group %q is not one of consumers, its members use the protocol %q: give Config.Group a name that nothing else has", c.cfg.Group, group.ProtocolType)
	}
	if offered := c.strategies(); group.Protocol != "" && !slices.Contains(offered, group.Protocol) {
		log.Warn("einmal: the group's members use another strategy than this one offers; unless each of them offers it too, joining is refused: "+clashRemedy,
			slog.String("theirs", group.Protocol), slog.String("offered", strings.Join(offered, ", ")))
	}
	return nil
}

// consumerProtocol is the type of a group of consumers.
const consumerProtocol = "consumer"

// strategies returns the names of those that this member offers.
func (c *Consumer) strategies() (names []string) {
	for _, s := range c.sarama.Consumer.Group.Rebalance.GroupStrategies {
		names = append(names, s.Name())
	}
	return names
}

func describeGroup(client sarama.Client, name string) (*sarama.GroupDescription, error) {
	coordinator, err := client.Coordinator(name)
	if err != nil {
		return nil, err
	}
	res, err := coordinator.DescribeGroups(&sarama.DescribeGroupsRequest{Version: 1, Groups: []string{name}})
	if err != nil {
		return nil, err
	}
	for _, g := range res.Groups {
		if g.GroupId == name {
			if g.ErrorCode != 0 {
				return nil, sarama.KError(g.ErrorCode)
			}
			return g, nil
		}
	}
	return nil, sarama.ErrIncompleteResponse
}
