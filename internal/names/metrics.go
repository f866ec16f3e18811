package names

// Instrument is a metric's name, with its unit in UCUM and what it says.
type Instrument struct{ Name, Unit, Description string }

// Metrics of a chain, see middleware.Metrics.
var (
	// ProcessDuration is the conventions' own.
	ProcessDuration = Instrument{"messaging.process.duration", "s", "Duration of an attempt to handle a message."}
	Attempts        = Instrument{"einmal.attempts", "{attempt}", "Attempts to handle a message, by what became of them."}
	EffectLatency   = Instrument{"einmal.effect.latency", "s",
		"From the timestamp of a record to the commit of its effect."}
	TxCount = Instrument{"einmal.transactions", "{transaction}",
		"Transactions of handlers and dead letters, by how they ended: one for each message. " +
			"Messages that share a transaction count each."}
	DeadLetters = Instrument{"einmal.dead_letters", "{message}", "Messages that were written as dead letters, by why."}

	GroupSize = Instrument{"einmal.group.size", "{message}",
		"Messages that a transaction of a store with Config.Group has answered."}
	GroupsRolledBack = Instrument{"einmal.groups.rolled_back", "{transaction}",
		"Groups that were rolled back, and whose messages came again in smaller ones."}
)

// Metrics of a Consumer, see consumer/consumermetrics.
var (
	ConsumerReady      = Instrument{"einmal.consumer.ready", "{consumer}", "1 while Consumer.Ready is true, else 0."}
	ConsumerRebalances = Instrument{"einmal.consumer.rebalances", "{rebalance}",
		"Assignments that came from the group."}
	ConsumerShortSessions = Instrument{"einmal.consumer.short_sessions", "{session}",
		"Memberships that failed, or ended within 10 s."}
	ConsumerPartitions = Instrument{"einmal.consumer.partitions", "{partition}", "Partitions that this process holds."}
	ConsumerUnreadable = Instrument{"einmal.consumer.unreadable", "{partition}",
		"Of them: those that cannot be fetched."}
	ConsumerPaused = Instrument{"einmal.consumer.paused", "{partition}",
		"Of them: those that are paused because a limit is reached."}
	ConsumerPausedTime = Instrument{"einmal.consumer.paused.time", "s",
		"Time for which partitions were paused, added up over them."}
	ConsumerAssigned  = Instrument{"einmal.consumer.assigned", "{partition}", "Partitions that came."}
	ConsumerDrains    = Instrument{"einmal.consumer.drains", "{partition}", "Partitions that went, after a drain."}
	ConsumerDrainTime = Instrument{"einmal.consumer.drain.time", "s",
		"Time that the drains took, added up over the partitions."}
	ConsumerDrainsCut = Instrument{"einmal.consumer.drains.cut", "{partition}",
		"Drains whose handlers were cancelled because the time was over."}
	ConsumerOutOfRange = Instrument{"einmal.consumer.out_of_range", "{partition}",
		"Partitions whose committed offset was not in the log any more."}
	ConsumerLag = Instrument{"einmal.consumer.lag", "{message}",
		"Messages behind the end of the log, those in work included. Missing while it is not known."}
	ConsumerHeld        = Instrument{"einmal.consumer.held", "{message}", "Messages that are fetched and not finished."}
	ConsumerHeldSize    = Instrument{"einmal.consumer.held.size", "By", "Memory that they hold."}
	ConsumerInFlight    = Instrument{"einmal.consumer.in_flight", "{message}", "Messages in a handler."}
	ConsumerParked      = Instrument{"einmal.consumer.parked", "{message}", "Messages that wait for their next attempt."}
	ConsumerFrontierGap = Instrument{"einmal.consumer.frontier.gap", "{message}",
		"Messages delivered from the oldest open one on: so many come again after a crash. The largest of the partitions."}
	ConsumerOldestAge = Instrument{"einmal.consumer.oldest.age", "s",
		"Since when the oldest open message has been fetched. The largest of the partitions that no user has paused."}
	ConsumerCommitted = Instrument{"einmal.consumer.committed", "{offset}",
		"Committed offsets, added up. Missing while one of them is not known."}
	ConsumerEnd = Instrument{"einmal.consumer.end", "{offset}",
		"Ends of the logs, added up. Missing while one of them is not known."}
	ConsumerUncommitted = Instrument{"einmal.consumer.uncommitted.age", "s",
		"Since when finished messages are not known to be committed. The largest of the partitions."}
	ConsumerFailingAge = Instrument{"einmal.consumer.failing.age", "s",
		"Since the first attempt at the oldest message that has failed and is open. The largest of the partitions that no user has paused."}
)

// Metrics of a Relay, see outbox/relay/relaymetrics.
var (
	OutboxRunning = Instrument{"einmal.outbox.running", "{relay}", "1 while the relay runs, else 0."}
	OutboxPaused  = Instrument{"einmal.outbox.paused", "{relay}",
		"1 while Kafka is away and nothing is claimed, else 0."}
	OutboxHealthy = Instrument{"einmal.outbox.healthy", "{relay}",
		"1 while there is fresh evidence that the relay does its work, else 0."}
	OutboxBacklog = Instrument{"einmal.outbox.backlog", "{event}",
		"Events in the table that wait; the same from each of its relays."}
	OutboxOldestAge = Instrument{"einmal.outbox.oldest.age", "s",
		"Age of the oldest event that waits; the same from each relay."}
	OutboxBlocked = Instrument{"einmal.outbox.blocked", "{event}",
		"Events that can never be sent as they are; the same from each relay."}
	OutboxInFlight = Instrument{"einmal.outbox.in_flight", "{event}",
		"Events that are claimed by two-phase relays; the same from each relay."}
	OutboxSeenAge   = Instrument{"einmal.outbox.seen.age", "s", "Since when the relay has not looked at the table."}
	OutboxPublished = Instrument{"einmal.outbox.published", "{event}",
		"Events that this relay has sent and marked or deleted."}
	OutboxLeaseLost = Instrument{"einmal.outbox.lease_lost", "{event}",
		"Events that were sent and not marked, because another relay had taken them back: they are sent twice."}
	OutboxReturned = Instrument{"einmal.outbox.returned", "{event}", "Events that were taken back from relays that died."}
	OutboxErrors   = Instrument{"einmal.outbox.errors", "{error}",
		"Errors of the database or of Kafka that were no event's own."}
)

// Metrics of a Janitor, see janitor/janitormetrics.
var (
	JanitorDeleted = Instrument{"einmal.janitor.deleted", "{row}", "Rows that were deleted."}
	JanitorDropped = Instrument{"einmal.janitor.partitions.dropped", "{partition}", "Partitions that were dropped."}
	JanitorCreated = Instrument{"einmal.janitor.partitions.created", "{partition}", "Partitions that were created ahead."}
	JanitorSweeps  = Instrument{"einmal.janitor.sweeps", "{sweep}", "Sweeps of a table, by how they ended."}
)

// IdempotencyRequests is measured by an idempotency.Handler, see idempotency/idempotencymetrics.
var IdempotencyRequests = Instrument{"einmal.idempotency.requests", "{request}",
	"Requests that a Handler has answered, by what became of them."}
