package storetest

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A store without a flaw passes.
func TestModelPasses(t *testing.T) {
	t.Parallel()
	Run(t, func(testing.TB) Harness[*modelTx] { return flaw("").harness() })
}

// Each flaw makes the cases fail that are there to find it, by the beginning of their name.
func TestFlawsAreFound(t *testing.T) {
	t.Parallel()
	for f, name := range map[flaw]string{
		"effects are seen early":                    "01",
		"the function has another context":          "01",
		"runs duplicates":                           "02",
		"says ran for duplicates":                   "02",
		"skips without waiting":                     "03",
		"fails without waiting":                     "04",
		"records apart, after the function":         "03",
		"records apart, before the function":        "05",
		"commits on error":                          "05",
		"hides the error":                           "05",
		"commits on panic":                          "06 panic",
		"swallows a panic":                          "06 panic",
		"commits although the context is done":      "07 context done, nil",
		"the cause is missing":                      "07 context done, nil",
		"swallows a failure":                        "08",
		"commits what was ended":                    "09",
		"ErrTxEnded is missing":                     "09",
		"forgets the consumer":                      "10",
		"folds case":                                "11",
		"drops trailing blanks":                     "11",
		"cuts ids off":                              "11",
		"composes letters":                          "11",
		"takes invalid keys":                        "12",
		"an unknown outcome is a success":           "13",
		"ErrOutcomeUnknown is missing":              "13",
		"an unknown outcome is tried again":         "13",
		"a frozen owner blocks for ever":            "14",
		"a frozen owner commits":                    "14",
		"a missed deadline loses the record":        "15",
		"the error repeats the id":                  "05",
		"Check fails":                               "17",
		"ErrLocked is missing":                      "18 class of a key",
		"the class of a wait is missing":            "18 class of a wait",
		"the class of a lost connection is missing": "18 class of a lost",
	} {
		t.Run(string(f), func(t *testing.T) {
			t.Parallel()
			for _, c := range cases[*modelTx]() {
				if !strings.HasPrefix(c.name, name) {
					continue
				}
				if log := firstFailure(t, c, f); log == "" {
					t.Errorf("case %q passes", c.name)
				} else {
					t.Logf("case %q: %s", c.name, log)
				}
			}
		})
	}
}

// firstFailure runs a case until it complains, and returns of what. The workers of case 15 act at random: in one of 300
// runs, fewer than three commits are those of the hasty store, and the flaw does not show.
func firstFailure(t *testing.T, c testCase[*modelTx], f flaw) (log string) {
	for range 10 {
		if log = failure(t, c, f.harness()); log != "" {
			break
		}
	}
	return log
}

// failure runs a case and returns what it complained about.
func failure(t *testing.T, c testCase[*modelTx], h Harness[*modelTx]) string {
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer r.cleanup()
		c.run(newSuite(r, h, 2*time.Second))
	}()
	<-done
	return r.complaints()
}

// A harness with the required fields only declines, and says what.
func TestDeclined(t *testing.T) {
	t.Parallel()
	h := flaw("").harness()
	h = Harness[*modelTx]{Store: h.Store, Write: h.Write, Effects: h.Effects}
	var declined []string
	for _, c := range cases[*modelTx]() {
		if c.declined(h) != "" {
			declined = append(declined, c.name[:2])
		}
	}
	if got, want := fmt.Sprint(declined), "[03 04 08 09 13 14 18 18 19 20]"; got != want {
		t.Errorf("declined: %s, want %s", got, want)
	}
}

// Every number of the contract in the package's documentation has a case, and the other way round. 16 is in all of
// them.
func TestContractIsComplete(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 30; n++ {
		promised := strings.Contains(string(doc), fmt.Sprintf("\n//  %d. ", n))
		tested := n == 16
		for _, c := range cases[*modelTx]() {
			tested = tested || strings.HasPrefix(c.name, fmt.Sprintf("%02d ", n))
		}
		if promised != tested {
			t.Errorf("promise %d: in the documentation %v, in the cases %v", n, promised, tested)
		}
	}
}

// recorder is a testing.TB that fails by itself alone.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	said     []string
	cleanups []func()
}

func (r *recorder) Helper()             {}
func (r *recorder) Logf(string, ...any) {}

func (r *recorder) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatal(args ...any) {
	r.Error(args...)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *recorder) cleanup() {
	for len(r.cleanups) > 0 {
		last := len(r.cleanups) - 1
		f := r.cleanups[last]
		r.cleanups = r.cleanups[:last]
		f()
	}
}

func (r *recorder) complaints() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, "; ")
}
