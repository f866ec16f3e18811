// Package settingstest holds tests and nothing else: the service of README with each of its settings wrong in a way
// that people get them wrong. What it says then has what is wrong and what to do, as an error, or in the log where it
// may be meant.
package settingstest
