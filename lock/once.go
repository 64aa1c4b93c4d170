// This file is Once: a job that runs once in a while, whoever gets to it first.

package lock

import (
	"context"
	"fmt"
	"time"
)

// Once runs fn unless it has succeeded under this name within the window, here or in any other process that uses the same Redis and Prefix. While another
// caller runs it, Once waits as long as ctx allows: when that run succeeds it returns, when it fails or its process dies, one of those who wait runs fn. So
// after a nil error the job has been done, by whomever.
//
// The window (above 0) counts from the success. ran says whether this call ran fn, and err is then fn's own, or says why its success was not recorded:
// ErrLost, ErrUnavailable. fn's context ends with ctx, and with the cause ErrLost when the claim is lost; the claim is renewed while fn runs, and outlives a
// process that died by Config.TTL. Other errors: as Mutex.Lock.
func (c *Client) Once(ctx context.Context, name string, window time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	l := c.lock(kindOnce, name, nil)
	if window <= 0 {
		l.refuse(fmt.Errorf("%w: window %v: want more than 0", ErrInvalid, window))
	}
	claim, err := l.acquire(ctx, opOnce, 0)
	switch {
	case err == errDone:
		return false, nil
	case err != nil:
		return false, err
	}
	return true, claim.do(ctx, func(ctx context.Context, claim *Lease) error {
		if err := fn(ctx); err != nil {
			return err
		}
		return claim.settle(ctx, window)
	})
}

// settle ends the claim and records the success. Where the store cannot be reached it tries for as long as the claim lives: a job that is done and not on
// record is done again.
func (l *Lease) settle(ctx context.Context, window time.Duration) error {
	t := l.tenure
	return l.finish(ctx, func(ctx context.Context) (bool, error) {
		for {
			recorded, err := t.client.store.settle(ctx, t.holding(), window)
			left := t.client.keeper.Validity(t.held).Left(time.Now())
			if err == nil || t.client.closed() || left <= 0 {
				return recorded, err
			}
			time.Sleep(min(left, settleEvery))
		}
	})
}

// settleEvery is how often a success is recorded again that the store did not confirm.
const settleEvery = 100 * time.Millisecond
