package console

import (
	"fmt"
	"math"
	"sync"
	"time"
)

const (
	historySpan = time.Hour
	maxPoints   = 360   // of a line: one each 10 s. With a shorter Config.Every a line is shorter than an hour
	maxLines    = 1_000 // that are kept
)

// history is what Run has seen: numbers over the last hour, each line by its key. It is safe for concurrent use.
type history struct {
	mu    sync.Mutex
	began time.Time // the first look
	lines map[string]*line
	last  map[string]committed // by group and topic
}

// line is a number over time. A time at which it was not known has no point.
type line struct{ points []point }

type point struct {
	at time.Time
	n  float64
}

// committed is the sum of a topic's offsets at a time.
type committed struct {
	at         time.Time
	sum        int64
	partitions int
}

func newHistory() *history {
	return &history{lines: map[string]*line{}, last: map[string]committed{}}
}

// The keys of lines.
func lagKey(group, topic string) string         { return "lag\x00" + group + "\x00" + topic }
func rateKey(group, topic string) string        { return "rate\x00" + group + "\x00" + topic }
func backlogKey(process, section string) string { return "backlog\x00" + process + "\x00" + section }
func deadKey(process, section string) string    { return "dead\x00" + process + "\x00" + section }

// add notes what is known at the time of s.
func (h *history) add(s *state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.began.IsZero() {
		h.began = s.At
	}
	for _, g := range s.Groups {
		for _, t := range g.Topics() {
			h.put(lagKey(g.Name, t.Topic), s.At, t.Lag())
			h.rate(rateKey(g.Name, t.Topic), s.At, &t)
		}
	}
	for _, o := range s.Outboxes {
		h.put(backlogKey(o.Process, o.Section), s.At, o.Count(o.Backlog))
	}
	for _, d := range s.Dead {
		h.put(deadKey(d.Process, d.Section), s.At, &d.Total)
	}
	h.forget(s.At)
}

func (h *history) put(key string, at time.Time, n *int64) {
	if n != nil {
		h.point(key, at, float64(*n))
	}
}

func (h *history) point(key string, at time.Time, n float64) {
	l := h.lines[key]
	if l == nil {
		if len(h.lines) >= maxLines {
			return
		}
		l = &line{}
		h.lines[key] = l
	}
	if l.points = append(l.points, point{at, n}); len(l.points) > maxPoints {
		l.points = append(l.points[:0], l.points[1:]...)
	}
}

// rate is how fast the committed offsets of a topic move, in messages a second. It needs all of them twice, of the same
// partitions: an offset that somebody has set back makes no rate.
func (h *history) rate(key string, at time.Time, t *topicState) {
	sum := sumOf(t.Partitions, (*partitionState).Committed)
	before, ok := h.last[key]
	delete(h.last, key)
	if sum == nil {
		return
	}
	if len(h.last) < maxLines {
		h.last[key] = committed{at, *sum, len(t.Partitions)}
	}
	if past := at.Sub(before.at).Seconds(); ok && past > 0 && past <= graphGap.Seconds() &&
		before.partitions == len(t.Partitions) && *sum >= before.sum {
		h.point(key, at, float64(*sum-before.sum)/past)
	}
}

// forget drops what is older than is shown.
func (h *history) forget(now time.Time) {
	for key, l := range h.lines {
		for len(l.points) > 0 && now.Sub(l.points[0].at) > historySpan {
			l.points = l.points[1:]
		}
		if len(l.points) == 0 {
			delete(h.lines, key)
		}
	}
	for key, c := range h.last {
		if now.Sub(c.at) > historySpan {
			delete(h.last, key)
		}
	}
}

// of returns the points of a line, the oldest first.
func (h *history) of(key string) []point {
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.lines[key]; l != nil {
		return append([]point(nil), l.points...)
	}
	return nil
}

// span is how much of the past graphs show: the last hour, or what there is of it since the first look.
func (h *history) span(now time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, span := range []time.Duration{5 * time.Minute, 15 * time.Minute, 30 * time.Minute} {
		if h.began.IsZero() || now.Sub(h.began) <= span {
			return span
		}
	}
	return historySpan
}

// pastText says how long the past is that graphs show.
func pastText(span time.Duration) string {
	if span == historySpan {
		return "last hour"
	}
	return fmt.Sprintf("last %d min", int(span.Minutes()))
}

// latest is the last number of a line, if it is not older than a minute; nil otherwise.
func (h *history) latest(key string, now time.Time) *float64 {
	points := h.of(key)
	if n := len(points); n > 0 && now.Sub(points[n-1].at) < time.Minute {
		return &points[n-1].n
	}
	return nil
}

// sinceWhen remembers when a problem was first seen, as long as it is there. It is safe for concurrent use.
type sinceWhen struct {
	mu    sync.Mutex
	first map[string]time.Time
}

func newSinceWhen() *sinceWhen { return &sinceWhen{first: map[string]time.Time{}} }

// see returns since when each of the keys has been there, and forgets all others. A look that is older than another
// changes nothing for the worse: a problem that is gone is seen anew.
func (s *sinceWhen) see(keys []string, now time.Time) map[string]time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := make(map[string]time.Time, len(keys))
	for _, key := range keys {
		first, ok := s.first[key]
		if !ok {
			first = now
		}
		there[key] = first
	}
	s.first = there
	return there
}

const (
	graphWidth, graphHeight = 160, 28
	graphGap                = 2 * time.Minute // without a point breaks the line, and makes no rate
)

// graph is a line as an SVG's polylines.
type graph struct {
	Lines  []string // points="..." of each stretch without a gap
	Dot    string   // "x,y" of the last point
	X, Y   float64
	Low    float64
	High   float64
	Last   float64
	Points int
	About  string // what it shows, for those who do not see it
	Unit   string
	Past   string // how long the past is that it shows
}

// graphOf draws the past of a line, with 0 at its foot. Nil if there are fewer than two points.
func graphOf(points []point, now time.Time, span time.Duration, about, unit string) *graph {
	if len(points) < 2 {
		return nil
	}
	g := &graph{Low: math.Inf(1), Points: len(points), About: about, Unit: unit, Past: pastText(span),
		Last: points[len(points)-1].n}
	for _, p := range points {
		g.Low, g.High = min(g.Low, p.n), max(g.High, p.n)
	}
	var text []byte
	var before time.Time
	for _, p := range points {
		if !before.IsZero() && p.at.Sub(before) > graphGap {
			g.Lines, text = append(g.Lines, string(text)), nil
		}
		before = p.at
		g.X = graphWidth * (1 - now.Sub(p.at).Seconds()/span.Seconds())
		g.Y = graphHeight - 3.0
		if g.High > 0 {
			g.Y -= (graphHeight - 6) * p.n / g.High
		}
		text = appendPoint(text, g.X, g.Y)
	}
	g.Lines = append(g.Lines, string(text))
	return g
}
