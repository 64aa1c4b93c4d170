// This file gets a lease: the way from a call of Lock, RLock, Acquire, Once or their Try forms to a grant. What happens to a lease afterwards is in lease.go.

package lock

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/onefill/onefill/internal/lease"
)

// errDone says that a Once needs no lease: it has been done.
var errDone = errors.New("lock: done")

// acquire gets a lease, waiting for it as long as ctx allows: one of the context's own, in line with others of this process, from the store.
func (l *lock) acquire(ctx context.Context, o op, n int) (*Lease, error) {
	if inner, err := l.enter(ctx, o); inner != nil || err != nil {
		return inner, err
	}
	turn, err := l.client.queue.Enter(ctx, l.room.id())
	if err != nil {
		if ctx.Err() != nil && err == ctx.Err() {
			err = stillHeld(ctx)
		}
		return nil, err
	}
	a := l.ask(o, n)
	sent := time.Now()
	got, err := l.client.store.take(ctx, a)
	if err == nil && got.state == stateHeld {
		sent, got, err = l.wait(ctx, a, got)
	} else {
		err = storeError(ctx, err)
	}
	return l.granted(ctx, a, sent, got, err, turn)
}

// try gets a lease or fails at once.
func (l *lock) try(ctx context.Context, o op, n int) (*Lease, error) {
	if inner, err := l.enter(ctx, o); inner != nil || err != nil {
		return inner, err
	}
	turn, held := l.client.queue.TryEnter(l.room.id()) // where another only waits, the store is asked beside it
	if held {
		return nil, ErrNotAcquired
	}
	a := l.ask(o, n)
	sent := time.Now()
	got, err := l.client.store.take(ctx, a)
	if err == nil && got.state == stateHeld {
		turn.Leave()
		return nil, ErrNotAcquired
	}
	return l.granted(ctx, a, sent, got, storeError(ctx, err), turn)
}

// enter refuses what needs no question, and answers from the context's own leases: with an inner lease, or ErrDeadlock.
func (l *lock) enter(ctx context.Context, o op) (*Lease, error) {
	switch {
	case l.err != nil:
		return nil, l.err
	case l.client.closed():
		return nil, ErrClosed
	case ctx.Err() != nil:
		return nil, storeError(ctx, ctx.Err())
	}
	outer := heldIn(ctx, l.client, l.room)
	if outer == nil {
		return nil, nil
	}
	if !l.reentry {
		return nil, ErrDeadlock
	}
	return outer.nest(ctx, o)
}

func (l *lock) ask(o op, n int) ask {
	return ask{op: o, room: l.room, token: rand.Text(), ttl: l.ttl, floor: max(l.floor, l.client.highest[l.room.bucket].Load()), n: n}
}

// pollEvery bounds how long a wake-up that was lost can cost.
const pollEvery = 500 * time.Millisecond

// pause returns how long to wait for a wake-up before asking again: no longer than the lease in the way is known to live, and for a waiting writer, whose
// intent is a lease that each question renews, a third of that lease. The few milliseconds by chance keep the waiters of a dead holder apart.
func (a ask) pause(left time.Duration) time.Duration {
	wait := pollEvery
	if left > 0 {
		wait = min(wait, left)
	}
	if a.op == opWrite || a.op == opUpgrade {
		wait = min(wait, a.ttl/3)
	}
	return wait + mrand.N(20*time.Millisecond)
}

// wait asks until the answer is anything but held: when woken, and by a timer beside it. The first question comes as soon as the subscription stands, so
// that no release is missed between the last answer and the first message.
func (l *lock) wait(ctx context.Context, a ask, got answer) (sent time.Time, _ answer, err error) {
	return l.client.await(ctx, a, got, nil)
}

// await is wait with one more reason to stop: lost, unless it is nil, ends the wait with ErrLost.
func (c *Client) await(ctx context.Context, a ask, got answer, lost <-chan struct{}) (sent time.Time, _ answer, err error) {
	wake, stop := c.store.listen(a.room)
	defer stop()
	a.waits = true
	timer := time.NewTimer(a.pause(got.left))
	defer timer.Stop()
	for err == nil && got.state == stateHeld {
		select {
		case <-ctx.Done():
			c.withdraw(ctx, a)
			return sent, got, stillHeld(ctx)
		case <-lost:
			c.withdraw(ctx, a)
			return sent, got, ErrLost
		case <-c.tasks.Context().Done():
			return sent, got, ErrClosed
		case <-wake:
		case <-timer.C:
		}
		sent = time.Now()
		got, err = c.store.take(ctx, a)
		timer.Reset(a.pause(got.left))
	}
	if err != nil {
		c.withdraw(ctx, a)
		if ctx.Err() != nil {
			return sent, got, stillHeld(ctx) // an earlier answer said so
		}
	}
	return sent, got, storeError(ctx, err)
}

// withdraw takes back the intent of a wait that has ended, in the background: whoever waited is gone.
func (c *Client) withdraw(ctx context.Context, a ask) {
	if a.op != opWrite && a.op != opUpgrade {
		return
	}
	c.tasks.Go(func(context.Context) {
		_ = c.store.withdraw(context.WithoutCancel(ctx), holding{room: a.room, token: a.token})
	})
}

// granted turns an answer into a lease in the keeper's care, and passes the turn on: at once, or with the end of a lease that is held alone anyway.
func (l *lock) granted(ctx context.Context, a ask, sent time.Time, got answer, err error, turn *lease.Turn) (*Lease, error) {
	switch {
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrClosed):
		turn.Fail(err)
		return nil, err
	case err == nil && got.state == stateDone:
		err = errDone
	}
	if err != nil {
		turn.Leave()
		return nil, err
	}
	l.client.saw(l.room, got.fence)
	t := newTenure(l.client, a, got.fence, sent)
	if a.op == opMutex || a.op == opOnce {
		t.turn = turn
		if turn != nil {
			turn.Hold()
		}
	} else {
		turn.Leave()
	}
	return t.keep(ctx)
}
