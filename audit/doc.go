// Package audit checks on production data that each event of a topic has taken effect once. It compares what the topic
// has with what the service has recorded, and, if a query is given, with the effects themselves:
//
//	the group's committed offsets    what is behind them must be recorded, dead, handed on or filtered
//	a window of the topic            the ids, by the topic's own rule, and a hash of what stands under each
//	the records, if there is a query what is recorded by now has an effect or a dead letter, which are read behind it
//	dead letters                     read before the effects, which a redrive can have at any time
//	the effects, by a query          an id for each; read before the records, which are committed with them
//	the records and hand-ons         what was committed before anything above was read is there
//	the outbox and the topic's tail  what is on its way back to the topic
//
// Each is written to sorted files, and one pass over all of them, in the order of the ids, says what fits and what does
// not. The order of reading is what makes it right beside running traffic: what moves meanwhile is undecided, never
// lost.
//
// It writes nothing to the database, joins no group and commits no offset. Outbox does the same for what relays have
// sent. The commands einmal audit and einmal audit outbox are made of them.
package audit
