// Package idempotencytest is for tests of what calls and serves by idempotency keys: Provider is a service to call that
// fails wherever a test wants it to, and counts its effects.
package idempotencytest
