package deadletter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/deadletter"
)

// shelf holds dead letters in memory, without a transaction.
type shelf []*deadletter.Record

func (s *shelf) List(_ context.Context, _ deadletter.Filter, after int64, limit int) (list []*deadletter.Record,
	err error) {
	for _, rec := range *s {
		if rec.ID > after && len(list) < limit {
			list = append(list, rec)
		}
	}
	return list, nil
}

func (s *shelf) Take(_ context.Context, _ int, id int64) (*deadletter.Record, error) {
	return (*s)[id-1], nil
}

func (s *shelf) Count(context.Context, deadletter.Filter) (int64, error) { return int64(len(*s)), nil }
func (s *shelf) Get(context.Context, int64) (*deadletter.Record, error) {
	return nil, deadletter.ErrTaken
}
func (s *shelf) Discard(context.Context, deadletter.Filter) (int64, error) { return 0, nil }
func (s *shelf) Failed(context.Context, int64, string) error               { return nil }
func (s *shelf) InTx(ctx context.Context, fn func(context.Context, int) error) error {
	return fn(ctx, 0)
}

func shelfOf(n int) *shelf {
	s := &shelf{}
	for i := range n {
		*s = append(*s, &deadletter.Record{ID: int64(i + 1), Consumer: "c"})
	}
	return s
}

// So many begin in a second, and no more; a dry run does not wait.
func TestRedrivePace(t *testing.T) {
	t.Parallel()
	const n = 250 // several pages
	for name, test := range map[string]struct {
		cfg  deadletter.RedriveConfig
		want time.Duration
	}{
		"default":   {deadletter.RedriveConfig{}, 24900 * time.Millisecond},
		"slow":      {deadletter.RedriveConfig{PerSecond: 0.5}, 498 * time.Second},
		"unlimited": {deadletter.RedriveConfig{PerSecond: -1}, 0},
		"dry run":   {deadletter.RedriveConfig{DryRun: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				test.cfg.Filter.Consumer = "c"
				s, begin := shelfOf(n), time.Now()
				ran := 0
				report, err := deadletter.Redrive(t.Context(), s, s, func(context.Context, int, *consumer.Message) error {
					ran++
					return nil
				}, &test.cfg)
				if took := time.Since(begin); err != nil || report.Found != n || took != test.want ||
					(ran == n) == test.cfg.DryRun {
					t.Errorf("%+v, %v, in %v, %d ran; want %v", report, err, took, ran, test.want)
				}
			})
		})
	}
}

// It ends with its context, also while it waits, and says how far it has come.
func TestRedriveEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("the operator has had enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(10*time.Second, func() { cancel(why) })
		s := shelfOf(10)
		report, err := deadletter.Redrive(ctx, s, s, func(context.Context, int, *consumer.Message) error { return nil },
			&deadletter.RedriveConfig{Filter: deadletter.Filter{Consumer: "c"}, PerSecond: 0.3})
		if want := (deadletter.Report{Found: 4, Redriven: 4}); !errors.Is(err, why) || report != want {
			t.Errorf("%+v, %v", report, err)
		}
	})
}

// Kinds that may double an effect, or end the process, are redriven where they are asked for.
func TestRedriveHolds(t *testing.T) {
	t.Parallel()
	for _, kind := range deadletter.Kinds() {
		held := kind == deadletter.KindTooOld || kind == deadletter.KindTxEnded || kind == deadletter.KindCrashLoop
		for name, test := range map[string]struct {
			filter deadletter.Filter
			held   bool
		}{
			"unnamed": {deadletter.Filter{}, held}, "kind": {deadletter.Filter{Kind: kind}, false},
			"id": {deadletter.Filter{IDs: []int64{1}}, false},
		} {
			s := shelfOf(1)
			(*s)[0].Kind, test.filter.Consumer = kind, "c"
			report, err := deadletter.Redrive(t.Context(), s, s,
				func(context.Context, int, *consumer.Message) error { return nil }, &deadletter.RedriveConfig{Filter: test.filter})
			want := deadletter.Report{Found: 1, Redriven: 1}
			if test.held {
				want = deadletter.Report{Held: 1}
			}
			if err != nil || report != want {
				t.Errorf("%s, %s: %+v, %v", kind, name, report, err)
			}
		}
	}
}
