// Package idemtest has what the tests of all stores of answers do with the database itself, beside the contract of
// idempotencytest.
package idemtest
