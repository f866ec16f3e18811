package idempotencytest

import (
	"math/rand/v2"
	"net/http"
)

// Fault is what a Provider does wrong with one request.
type Fault string

// The faults. Before, during and after are meant of the effect.
const (
	NoFault    Fault = ""
	FailBefore Fault = "fail before" // 503, no effect
	DropBefore Fault = "drop before" // the connection is cut, no effect
	TooMany    Fault = "too many"    // 429, no effect
	FailDuring Fault = "fail during" // 500; the effect goes on, and its key is in progress for a while
	DropDuring Fault = "drop during" // as FailDuring, but the connection is cut
	FailAfter  Fault = "fail after"  // 500 instead of the answer
	DropAfter  Fault = "drop after"  // the connection is cut instead of the answer
	CutAnswer  Fault = "cut answer"  // the connection is cut in the middle of the answer
)

// Faults returns all faults but NoFault.
func Faults() []Fault {
	return []Fault{FailBefore, DropBefore, TooMany, FailDuring, DropDuring, FailAfter, DropAfter, CutAnswer}
}

// RandomFaults returns a function for ProviderConfig.Faults that gives a fault to the given share of the requests, from
// 0 to 1, each fault as often. The same seed gives the same row of faults.
func RandomFaults(seed uint64, share float64) func(ProviderCall) Fault {
	r := rand.New(rand.NewPCG(seed, 0))
	all := Faults()
	return func(ProviderCall) Fault {
		if r.Float64() >= share {
			return NoFault
		}
		return all[r.IntN(len(all))]
	}
}

// before says what is answered to a request that does not even reach the effect.
func (f Fault) before() (status int, answer []byte, ok bool) {
	if f == FailBefore || f == TooMany || f == DropBefore {
		status = map[Fault]int{FailBefore: http.StatusServiceUnavailable, TooMany: http.StatusTooManyRequests}[f]
		return status, problem(status, "Fault before the effect"), true
	}
	return 0, nil, false
}

// hides reports whether a failure is answered instead of the effect's answer.
func (f Fault) hides() bool { return f == FailDuring || f == FailAfter }

// lasts reports whether the key is in progress when the request is over.
func (f Fault) lasts() bool { return f == FailDuring || f == DropDuring }

func (f Fault) cuts() bool {
	return f == DropBefore || f == DropDuring || f == DropAfter || f == CutAnswer
}
