// This file is the Throttle: a rate that all processes keep together.

package lock

import (
	"context"
	"fmt"
	"time"
)

// Throttle lets n events through each period across all processes that use the same Redis, Prefix and name. It is a bucket that holds n events and fills
// steadily, one event every period/n, by Redis's clock alone: at most n events pass at once, and no stretch of time t sees more than n + n·t/period. A
// bucket that is new, was lost, or has rested for a period is full; making another Throttle of the name does not fill it.
type Throttle struct {
	lock
	n   int
	per time.Duration
}

// Throttle returns the throttle of that name (1 to 1024 bytes) with n events, 1 to 1,000,000, each period of 1 ms to 366 days. Making it costs no trip; a
// wrong name, n, period or option is ErrInvalid at its first use.
func (c *Client) Throttle(name string, n int, per time.Duration, options ...Option) *Throttle {
	t := &Throttle{c.lock(kindThrottle, name, options), n, per}
	t.refuse(checkCount(n))
	if per < time.Millisecond || per > 366*24*time.Hour {
		t.refuse(fmt.Errorf("%w: period %v: want 1ms to 366 days", ErrInvalid, per))
	}
	return t
}

// Allow lets one event through now, or returns ErrThrottled. ctx bounds the question. Other errors: ErrUnavailable, ErrClosed, ErrInvalid, or ctx's own.
func (t *Throttle) Allow(ctx context.Context) error {
	wait, err := t.spend(ctx)
	if err == nil && wait > 0 {
		err = fmt.Errorf("%w: next event in %v", ErrThrottled, wait)
	}
	return err
}

// Wait waits as long as ctx allows until one event may pass; callers of one process in the order of their arrival. When the event comes too late for ctx's
// deadline it returns at once. Errors: ErrThrottled together with context.DeadlineExceeded or ctx's own error, ErrUnavailable, ErrClosed, ErrInvalid.
func (t *Throttle) Wait(ctx context.Context) error {
	if t.err != nil {
		return t.err
	}
	turn, err := t.client.queue.Enter(ctx, t.room.id())
	if err != nil {
		if ctx.Err() != nil && err == ctx.Err() {
			err = fmt.Errorf("%w: %w", ErrThrottled, err)
		}
		return err
	}
	defer turn.Leave()
	for {
		wait, err := t.spend(ctx)
		if err != nil || wait == 0 {
			return err
		}
		if err := t.sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// sleep waits until the next event is due.
func (t *Throttle) sleep(ctx context.Context, wait time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
		return fmt.Errorf("%w: next event in %v: %w", ErrThrottled, wait, context.DeadlineExceeded)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrThrottled, ctx.Err())
	case <-t.client.tasks.Context().Done():
		return ErrClosed
	case <-timer.C:
		return nil
	}
}

// spend takes one event from the bucket, or returns the time until there is one.
func (t *Throttle) spend(ctx context.Context) (time.Duration, error) {
	switch {
	case t.err != nil:
		return 0, t.err
	case t.client.closed():
		return 0, ErrClosed
	}
	wait, err := t.client.store.spend(ctx, t.room, t.n, t.per)
	return wait, storeError(ctx, err)
}
