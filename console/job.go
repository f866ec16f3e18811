package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// job is an action that takes long. It is kept in memory, so that a reload shows how far it is, and ends with the
// process: what it has done by then is done, and doing it again doubles nothing.
type job struct {
	ID     string
	Title  string
	Entry  Entry
	Back   string // the address of the page that shows what it works on
	Begun  time.Time
	on     string // what it works on: one job at a time does
	do     func(ctx context.Context, tell func(change func(*progress))) error
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	now   progress
	ended time.Time
	err   error
}

// progress is how far a job is.
type progress struct {
	Total     int64 // as counted before; 0 if it is not known
	TotalMore bool  // there are more than that
	Looked    int64 // that were looked at
	Changed   int64
	Failed    int64
	Held      int64 // that must be named by their kind, and were not
	Gone      int64 // that somebody else has changed, or is changing
	Failures  []jobFailure
	Also      []string // sentences about the rest
}

// jobFailure is one that failed.
type jobFailure struct {
	What, Link, Why string
}

// maxJobFailures is how many are kept of a job.
const maxJobFailures = 20

// fails adds one that failed.
func (p *progress) fails(f jobFailure) {
	p.Failed++
	if len(p.Failures) < maxJobFailures {
		p.Failures = append(p.Failures, f)
	}
}

// Percent is how much is done; nil if it is not known.
func (p *progress) Percent() *int64 {
	if p.Total == 0 || p.TotalMore {
		return nil
	}
	return new(min(100, 100*p.Looked/p.Total))
}

// errJobStopped is the cause with which somebody ends a job, and errJobsOver that of Console.Run's end.
var (
	errJobStopped = errors.New("it was stopped")
	errJobsOver   = errors.New("the console has ended, and its jobs with it")
)

// maxJobs is how many are kept, of those that have ended.
const maxJobs = 100

// jobs are those of a console. It is safe for concurrent use.
type jobs struct {
	mu      sync.Mutex
	list    []*job          // the oldest first
	busy    map[string]*job // by what they work on
	over    bool
	running sync.WaitGroup
}

func newJobs() *jobs { return &jobs{busy: map[string]*job{}} }

// reserve makes a job that will work on something, unless another one does. It does not begin before launch.
func (s *jobs) reserve(j *job) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return &refusal{http.StatusServiceUnavailable, "This process is about to end.",
			"So no job is begun. Nothing was done."}
	}
	if other := s.busy[j.on]; other != nil {
		return &refusal{
			http.StatusConflict, "Another job is at work on this.",
			fmt.Sprintf("%s, begun by %s: wait for its end, or stop it. Nothing was done.", other.Title, other.Entry.Who),
		}
	}
	j.ID, j.Begun = rand.Text(), time.Now()
	j.ctx, j.cancel = context.WithCancelCause(context.Background())
	s.busy[j.on] = j
	s.list = append(s.list, j)
	for i := 0; len(s.list) > maxJobs && i < len(s.list); {
		if s.list[i].Running() {
			i++
			continue
		}
		s.list = slices.Delete(s.list, i, i+1)
	}
	s.running.Add(1)
	return nil
}

// launch begins a job that was reserved. end is called when it has ended.
func (s *jobs) launch(j *job, end func(changed int64, err error)) {
	go func() {
		defer s.running.Done()
		err := j.contained()
		if cause := context.Cause(j.ctx); cause != nil && err != nil {
			err = cause // what it cut short says less
		}
		j.mu.Lock()
		changed := j.now.Changed
		j.mu.Unlock()
		end(changed, err) // before its end is seen: the line and the row are there then
		j.mu.Lock()
		j.ended, j.err = time.Now(), err
		j.mu.Unlock()
		j.cancel(nil)
		s.mu.Lock()
		delete(s.busy, j.on)
		s.mu.Unlock()
	}()
}

// contained makes an error of a panic: it would end the service.
func (j *job) contained() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("it panicked: a %T", v) // its text may be anything
		}
	}()
	return j.do(j.ctx, j.tell)
}

func (j *job) tell(change func(*progress)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change(&j.now)
}

// end stops all jobs, and waits for their end.
func (s *jobs) end() {
	s.mu.Lock()
	s.over = true
	for _, j := range s.list {
		j.cancel(errJobsOver)
	}
	s.mu.Unlock()
	s.running.Wait()
}

func (s *jobs) get(id string) *job {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.list {
		if j.ID == id {
			return j
		}
	}
	return nil
}

// all returns them, the newest first.
func (s *jobs) all() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Clone(s.list)
	slices.Reverse(list)
	return list
}

// Running reports whether the job has not ended.
func (j *job) Running() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended.IsZero()
}

// Now is how far it is.
func (j *job) Now() *progress {
	j.mu.Lock()
	defer j.mu.Unlock()
	now := j.now
	now.Failures, now.Also = slices.Clone(now.Failures), slices.Clone(now.Also)
	return &now
}

// Ended is when it has ended; zero before.
func (j *job) Ended() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.ended
}

// Stopped reports whether it was ended before its end.
func (j *job) Stopped() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Is(j.err, errJobStopped) || errors.Is(j.err, errJobsOver)
}

// Problem is why it did not come to its end; "" if it did, or has not yet.
func (j *job) Problem() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		return ""
	}
	return shownError(j.err)
}

// Link is its page.
func (j *job) Link() string { return address("job", "id", j.ID) }

// jobsPage is all jobs of this process.
func (c *Console) jobsPage(*http.Request) (title string, body any, err error) {
	return "Jobs", c.jobs.all(), nil
}

// hasJobs reports whether there is or can be any.
func hasJobs(c *Console) bool { return c.cfg.Authorize != nil }

// jobPage is one job.
func (c *Console) jobPage(r *http.Request) (title string, body any, err error) {
	j, err := c.jobOf(r.URL.Query())
	if err != nil {
		return "", nil, err
	}
	return j.Title, j, nil
}

func (c *Console) jobOf(args url.Values) (*job, error) {
	j := c.jobs.get(args.Get("id"))
	if j == nil {
		return nil, &refusal{
			http.StatusNotFound, "This job is not known here.",
			"Jobs are kept by the process that does them, and end with it. What was done is done; do the rest again: nothing is done twice. The log, and the audit table if there is one, tell of it.",
		}
	}
	return j, nil
}

// stopJob ends a job before its end.
var stopJob = deed{
	verb: "job.stop", title: "Stop a job", button: "Stop it",
	prepare: func(_ context.Context, c *Console, args url.Values) (*plan, error) {
		j, err := c.jobOf(args)
		if err != nil {
			return nil, err
		}
		if !j.Running() {
			return nil, &refusal{http.StatusConflict, "This job has ended.", "There is nothing to stop."}
		}
		return &plan{
			Target: j.Title + ": " + j.Entry.Target, Back: j.Link(),
			Says: []string{"What is in work finishes or rolls back. What was done stays done, and the rest as it is: the job can be begun again."},
		}, nil
	},
	do: func(_ context.Context, c *Console, args url.Values, _ *Entry) (outcome, error) {
		j, err := c.jobOf(args)
		if err != nil {
			return outcome{}, err
		}
		j.cancel(errJobStopped)
		return outcome{Count: 1, Next: j.Link()}, nil
	},
}

// begins is the outcome of a deed that is a job from now on.
func (c *Console) begins(j *job) (outcome, error) {
	if err := c.jobs.reserve(j); err != nil {
		return outcome{}, err
	}
	return outcome{Next: j.Link(), job: j}, nil
}

// describe makes a text of arguments, for Action.Target and the log.
func describe(of string, args map[string]string) string {
	text := of
	separator := ": "
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if args[name] != "" {
			text += separator + name + " " + args[name]
			separator = ", "
		}
	}
	const most = 300
	if len(text) > most {
		text = text[:most] + "..."
	}
	return text
}
