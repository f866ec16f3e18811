package outbox

// Mode is how relays send the rows of a table: all relays of a table have the same mode. The first one writes it into
// the table outbox_mode, and one of the other mode is refused. Operator.SwitchMode changes it.
type Mode string

// The modes.
const (
	// SinglePhase locks buckets, sends their rows, and deletes what was acknowledged, all in one transaction. It
	// writes least and is the fastest. Its transaction is open while Kafka answers, at most for
	// relay.Config.OutcomeTimeout: for that long it keeps VACUUM from removing what died meanwhile, in all tables.
	SinglePhase Mode = "single-phase"

	// TwoPhase claims rows in a short transaction, sends them outside of any, and marks them in another short one. It
	// writes each row twice more. It is for a Kafka that often takes longer than a second, and counts how often a
	// row's relay died.
	TwoPhase Mode = "two-phase"
)
