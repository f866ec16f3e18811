// Package losttest holds tests of all stores on PostgreSQL whose database goes away: a proxy cuts the connection at
// every message of a transaction; a server is killed and started again under load; a primary is lost while commits wait
// for its synchronous replica, which is promoted. Whatever error came of it, the event is delivered again until it is
// acknowledged, as a consumer does it. Then effects = records = ids, in tables that would take an effect twice, and
// nothing that was acknowledged has been lost.
//
// The servers that are killed are the tests' own, with fsync. The tests are skipped where a machine cannot run such a
// server, unless EINMAL_REQUIRE_INSTANCE is 1.
//
// go test -run 'Killed|FailsOver' -timeout 1h ./dedupstore/internal/losttest -lost.crashes=100 -lost.failovers=20 is
// the long form, for which EINMAL_LOST_CRASHES and EINMAL_LOST_FAILOVERS stand too.
package losttest
