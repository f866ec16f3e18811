package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// message replays one record. Its error ends the replay.
func (r *replay) message(ctx context.Context, rec *sarama.ConsumerMessage) error {
	msg := r.messageOf(rec)
	switch {
	case r.tooOld(msg):
		r.count(func(c *ReplayCounts) { c.TooOld++ })
		return nil
	case !r.topic.hasID(msg):
		r.count(func(c *ReplayCounts) { c.WithoutID++ })
		return nil
	}
	a, err := r.attempts(ctx, &Delivery{topic: r.topic, msg: msg})
	switch {
	case err != nil:
		return err
	case a.Err != nil:
		return r.failed(msg, a.Err)
	case a.Message.Result.HandedOn != nil && a.Message.Result.Duplicate:
		return r.failed(msg, fmt.Errorf("it was handed on before, and is not handed on again: %w", a.Message.Result.HandedOn))
	}
	r.count(func(c *ReplayCounts) { c.took(a.Message.Result) })
	return nil
}

func (r *replay) messageOf(rec *sarama.ConsumerMessage) Message {
	var a attempting
	a.fill(rec, &r.topic.names)
	a.msg.TopicID, a.msg.Group, a.msg.Consumer = r.id, r.topic.group, r.topic.consumer
	return a.msg
}

// tooOld reports whether the record of the event may be gone. Of a message without a time nobody knows.
func (r *replay) tooOld(msg Message) bool {
	return r.keep > 0 && (msg.Timestamp.IsZero() || time.Since(msg.Timestamp) > r.keep)
}

// hasID asks for the event's id, as each attempt does.
func (t *topic) hasID(msg Message) (ok bool) {
	id, err := t.idOf(&msg)
	return err == nil && id != ""
}

// attempts makes them until none is asked for, or there have been enough. Its error is that of ctx.
func (r *replay) attempts(ctx context.Context, d *Delivery) (*Attempt, error) {
	for n := 1; ; n++ {
		a := r.attempt(ctx, d)
		if ctx.Err() != nil && a.Err != nil {
			return nil, context.Cause(ctx)
		}
		if _, asked := Delay(a.Err); a.Err == nil || !asked || n >= r.cfg.Attempts {
			return a, nil
		}
		if !pause(ctx, a.Delay) {
			return nil, context.Cause(ctx)
		}
	}
}

// attempt keeps to Topic.ProcessingLimit.
func (r *replay) attempt(ctx context.Context, d *Delivery) *Attempt {
	if r.topic.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, r.topic.limit, ErrProcessingLimit)
		defer cancel()
	}
	a := d.Attempt(ctx)
	if a.Err != nil && errors.Is(context.Cause(ctx), ErrProcessingLimit) {
		a.Err = fmt.Errorf("%w: %w", ErrProcessingLimit, a.Err)
	}
	return a
}

// failed does as OnFailure says.
func (r *replay) failed(msg Message, err error) error {
	r.log.Error("einmal: a message failed in a replay", slog.Int(attrPartition, int(msg.Partition)),
		slog.Int64(attrOffset, msg.Offset), slog.String("error", msg.ErrorText(err, maxErrorText)))
	if r.cfg.OnFailure == StopReplay {
		return newStopError(&msg, err)
	}
	r.count(func(c *ReplayCounts) { c.Failed++ })
	return nil
}

func (r *replay) count(as func(*ReplayCounts)) {
	r.mu.Lock()
	r.report.Read++
	as(&r.report.ReplayCounts)
	now := r.report.ReplayCounts
	r.mu.Unlock()
	if r.cfg.Progress != nil {
		r.cfg.Progress(now)
	}
}

// took counts a message whose chain returned nil.
func (c *ReplayCounts) took(res Result) {
	switch {
	case res.Dead:
		c.Dead++
	case res.HandedOn != nil:
		c.HandedOn++
	case res.Duplicate:
		c.Duplicates++
	default:
		c.Processed++
		if res.Skipped {
			c.Skipped++
		}
	}
}
