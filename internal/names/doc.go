// Package names has the names that spans, metrics and log lines share: OpenTelemetry's conventions for messaging where
// they have one, and "einmal." before what they have none for. The conventions are still in development: all that
// depends on their version stands in this package.
package names
