// Package compat is a module of its own with the tests of what einmal's users put beside it: migration tools that run
// the files of package schema, libraries that work in the stores' transactions, middlewares that compress answers
// around or within idempotency.Handler, a schema registry for the codecs, and the API of Kubernetes for the manifests
// of examples/service. It has their dependencies, so that the module of the library has none of them.
package compat
