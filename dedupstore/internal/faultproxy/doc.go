// Package faultproxy is a TCP proxy for tests, which stands before a PostgreSQL server and cuts a connection at a
// message of the protocol: before a statement, in the middle of its message, before its answer, in the middle of the
// answer. What the driver and the server see of it is what a network does: the end of the stream, a reset, or silence.
//
// The cuts of toxiproxy are counts of bytes and of time (limit_data, timeout, reset_peer). On a connection of a pool,
// whose statements have been prepared or not and whose ids differ in length, neither says "COMMIT has arrived and its
// answer has not". So this reads the protocol. Package faultconn, which needs no proxy, sits in the driver's dialer:
// with it the driver's own Write fails, where with a network the write succeeds and the failure comes later, or never.
//
// The connections must not be encrypted.
package faultproxy
