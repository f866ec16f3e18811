// Package orders has the messages of the codec's tests.
package orders

//go:generate protoc --go_out=. --go_opt=paths=source_relative orders.proto
