// Package docs checks the project's documents: every Go snippet compiles, every link leads somewhere.
package docs
