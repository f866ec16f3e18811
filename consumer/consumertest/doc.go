// Package consumertest hands messages to the chains of a service's own configuration, without a broker and without
// waiting.
//
//	func TestCharge(t *testing.T) {
//		out := consumertest.Run(t, topic, consumertest.JSON("orders", "event-1", order))
//		if out.Err != nil {
//			t.Fatal(out)
//		}
//		// look into the database
//	}
//
// Everything between the broker and the handler is the runner's own code: New's checks of the configuration and of the
// order of the links, the links' Check, the facts in the Message, a fresh Message and an empty Result for each attempt,
// contained panics, and the judgement of what follows on an error. Only time is missing: where the runner parks a
// message or backs off, the next attempt follows at once, and the delay is noted in the outcome.
//
// A second Deliver of a message is a redelivery, as after a rebalance or a restart. To see a handler delivered again
// after each step at which a transaction can fail, use package middleware/handlertest.
package consumertest
