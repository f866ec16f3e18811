// Package childtest runs what is tested in child processes, which a test can kill, freeze and stop. A child is the test
// binary itself, started again:
//
//	func TestMain(m *testing.M) {
//		childtest.Main(envOrders, run) // in a child it does not return
//		…
//	}
//
//	func TestKilled(t *testing.T) {
//		p := childtest.Start(t, envOrders, "name", orders{…})
//		p.Await(childtest.Up)
//		p.Kill()
package childtest
