package relay

import (
	"slices"
	"time"
)

// parking remembers buckets in which rows wait, none of which can be sent: they are behind blocked ones. To look at
// all of them again with each poll would cost more than all else. Such a bucket is left alone until a row comes that
// can be sent, what is blocked changes, or some time has passed: a row with a lower number, of a long transaction, or
// that was dead and is sent again, shows by nothing else.
//
// A bucket is left alone as a whole, so that nothing overtakes.
type parking map[int64]*parked

type parked struct {
	seen  bucketFacts // by the poll before the last look at its rows; the zero one is not known
	until time.Time
	wait  time.Duration
	took  time.Duration // to look at its rows
}

// bucketFacts are what a poll tells of a bucket that is parked.
type bucketFacts struct {
	last    int64  // the highest number that waits
	blocked int64  // how many are blocked, of the first 100
	sum     string // of their numbers
}

// A parked bucket is looked at again after 1 s, then 2 s, up to 10 s, and after a hundred times what a look at all
// parked buckets takes, up to a minute: however many they are, they cost a hundredth of a session.
const (
	leastParked = time.Second
	mostParked  = 10 * time.Second
	longParked  = time.Minute
)

// lasts are the buckets and, for each, the highest number that is known.
func (p parking) lasts() (buckets, lasts []int64) {
	for bucket, one := range p {
		buckets, lasts = append(buckets, bucket), append(lasts, one.seen.last)
	}
	return buckets, lasts
}

// open reports whether a bucket is to be looked at, of which a poll has told these facts, and whether something new
// in it can be sent.
func (p parking) open(bucket int64, now bucketFacts, fresh bool) bool {
	one := p[bucket]
	if one == nil {
		return true
	}
	known := one.seen.blocked == now.blocked && one.seen.sum == now.sum && !fresh
	one.seen = now
	if !known {
		one.until, one.wait = time.Time{}, 0 // until it has been looked at
	}
	return !time.Now().Before(one.until)
}

// looked notes a batch of the locked buckets. barren are those of whose rows none could be sent.
func (p parking) looked(locked, barren []int64, took time.Duration) {
	took /= time.Duration(max(1, len(locked)))
	for _, bucket := range locked {
		if !slices.Contains(barren, bucket) {
			delete(p, bucket)
			continue
		}
		one := p[bucket]
		if one == nil {
			one = &parked{}
			p[bucket] = one
		}
		one.wait, one.took = min(mostParked, max(leastParked, 2*one.wait)), took
		one.until = time.Now().Add(max(one.wait, min(longParked, 100*p.took())))
	}
}

// took is how long a look at all of them takes.
func (p parking) took() (sum time.Duration) {
	for _, one := range p {
		sum += one.took
	}
	return sum
}
