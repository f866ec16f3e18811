// Package arrows holds a test and nothing else: it fails when a package of this module imports what it must not.
//
//	offsets <- consumer <- middleware -> dedupstore <- pgxstore, memstore, storetest
//
// The table in arrows_test.go says for each package what it may import beside the standard library.
package arrows
