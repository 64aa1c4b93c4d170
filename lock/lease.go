// This file is the Lease: what a holder has in its hands. The grant behind it, which inner leases share, is in tenure.go.

package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is a lock that is held. It is renewed until it is released. Its methods are safe for concurrent use.
type Lease struct {
	tenure *tenure
	ctx    context.Context
	cancel context.CancelCauseFunc
	stage  stage // guarded by tenure.mu
}

// stage is how far a lease has come.
type stage int

const (
	stageOpen        stage = iota
	stageReleased          // or on the way there
	stageUnconfirmed       // the store did not confirm the release, which may be repeated
)

// Context carries the values of the context that the lease was asked for with, but not its end: it ends when the lease is released, and with the cause
// ErrLost (see context.Cause) when the lease is lost, or ErrClosed when the Client is closed. Work under the lock runs on it.
func (l *Lease) Context() context.Context { return l.ctx }

// Fence is the lease's number: higher than that of every lease granted for the name before. A resource that records the highest it has seen, and refuses
// lower ones, is safe from a holder that does not know yet that it has lost its lease. Upgrade raises it.
func (l *Lease) Fence() uint64 {
	l.tenure.mu.Lock()
	defer l.tenure.mu.Unlock()
	return l.tenure.fence
}

// Expires is the moment until which the lease may be relied on without another renewal: before it can end in the store, by this process's clock.
func (l *Lease) Expires() time.Time {
	return l.tenure.client.keeper.Validity(l.tenure.held).Ends()
}

// Check asks the store whether the lease is still held, and renews it by the way: after nil, a whole TTL is left. Errors: ErrLost, ErrNotHeld after Release,
// ErrUnavailable, or ctx's own.
func (l *Lease) Check(ctx context.Context) error {
	return l.extend(ctx, l.tenure.client.keeper.TTL(l.tenure.held))
}

// Renew gives the lease ttl from now on (100 ms to 24 h), here and in every renewal to come. Errors: as Check, and ErrInvalid for a ttl out of range.
func (l *Lease) Renew(ctx context.Context, ttl time.Duration) error {
	if err := checkTTL("ttl", ttl); err != nil {
		return err
	}
	return l.extend(ctx, ttl)
}

func (l *Lease) extend(ctx context.Context, ttl time.Duration) error {
	t := l.tenure
	if err := l.usable(); err != nil {
		return err
	}
	h := t.holding()
	h.ttl = ttl
	sent := time.Now()
	kept, err := t.client.store.renew(ctx, 0, []holding{h})
	if err != nil {
		return storeError(ctx, err)
	}
	if !kept[0] {
		t.lost()
		return l.usable()
	}
	if !t.client.keeper.Extend(t.held, ttl, sent) {
		return l.usable()
	}
	return nil
}

// Upgrade turns a read lease of an RWMutex into the write lease, as soon as every other reader has left, ahead of writers that wait; new readers are kept
// out meanwhile. It waits as long as ctx allows, and leaves the read lease as it was when it fails. Errors: ErrConflict at once when another reader is being
// upgraded, ErrNotAcquired with ctx's own error, ErrLost, ErrNotHeld, ErrUnavailable, and ErrInvalid for anything but a read lease.
func (l *Lease) Upgrade(ctx context.Context) error {
	t := l.tenure
	if err := l.usable(); err != nil {
		return err
	}
	if err := t.upgradable(); err != nil {
		return err
	}
	a := ask{op: opUpgrade, room: t.room, token: t.token, ttl: t.client.keeper.TTL(t.held), floor: t.client.highest[t.room.bucket].Load()}
	sent := time.Now()
	got, err := t.client.store.take(ctx, a)
	if err != nil {
		t.client.withdraw(ctx, a)
		err = storeError(ctx, err)
	} else if got.state == stateHeld {
		sent, got, err = t.client.await(ctx, a, got, l.ctx.Done())
	}
	switch {
	case err != nil:
		return cmp.Or(l.usable(), err)
	case got.state == stateConflict:
		return ErrConflict
	case got.state == stateLost:
		t.lost()
		return l.usable()
	}
	t.client.saw(t.room, got.fence)
	t.client.keeper.Extend(t.held, a.ttl, sent)
	t.become(opWrite, got.fence, false)
	return l.usable()
}

// Downgrade turns a write lease of an RWMutex into a read lease, without a moment in between. Errors: ErrLost, ErrNotHeld, ErrUnavailable, ctx's own, and
// ErrInvalid for anything but a write lease of an RWMutex. After an error of the store's the lease counts as a read lease that cannot be upgraded: nobody
// knows whether it is more.
func (l *Lease) Downgrade(ctx context.Context) error {
	t := l.tenure
	if err := l.usable(); err != nil {
		return err
	}
	if t.room.kind != kindRW || t.reading() {
		return fmt.Errorf("%w: Downgrade of a lease that is not a write lease", ErrInvalid)
	}
	sent := time.Now()
	h := t.holding()
	kept, err := t.client.store.downgrade(ctx, h)
	if err != nil {
		t.become(opRead, 0, true)
		return storeError(ctx, err)
	}
	if !kept {
		t.lost()
		return l.usable()
	}
	t.client.keeper.Extend(t.held, h.ttl, sent)
	t.become(opRead, 0, false)
	return l.usable()
}

// Release gives the lease back and ends its Context. Of leases that share a grant (WithReentry) only the last frees the lock. It uses ctx's values, not its
// end, so that a deferred Release works when the work was cancelled. Errors: ErrLost when the lease had ended before, ErrNotHeld when it was released
// before, ErrClosed, and ErrUnavailable when the store did not confirm: the lease is not renewed any more and ends with its TTL; Release may be called again.
func (l *Lease) Release(ctx context.Context) error {
	t := l.tenure
	return l.finish(ctx, func(ctx context.Context) (bool, error) { return t.client.store.leave(ctx, t.holding()) })
}

// finish ends the lease, and if it is the last of its tenure, tells the store by the given call, which reports whether the store still knew it.
func (l *Lease) finish(ctx context.Context, tell func(context.Context) (bool, error)) error {
	t := l.tenure
	last, err := t.release(l)
	if err != nil || !last {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	t.client.keeper.Drop(t.held)
	left := t.client.keeper.Validity(t.held).Left(time.Now())
	known, err := tell(ctx)
	ended := t.released(l, err == nil)
	switch {
	case err != nil:
		return storeError(ctx, err)
	case ended != nil:
		return ended
	case !known || left <= 0:
		return ErrLost
	}
	return nil
}

// do runs fn under the lease and releases it, whatever fn does.
func (l *Lease) do(ctx context.Context, fn func(context.Context, *Lease) error) (err error) {
	work, cancel := context.WithCancelCause(withHeld(ctx, l.tenure))
	stop := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	defer func() {
		stop()
		cancel(nil)
		if released := l.Release(ctx); !errors.Is(released, ErrNotHeld) { // fn may have released it
			err = errors.Join(err, released)
		}
	}()
	return fn(work, l)
}

// Token is what another process needs to take the lease over with Client.Adopt. Stop working under the lease before handing the token on: from the moment
// it is adopted this side's lease is lost. Once the token has been taken, Client.Close leaves the lease to whoever adopts it within the TTL. Whoever has the
// token has the lease: treat it as a secret.
func (l *Lease) Token() string {
	t := l.tenure
	ttl := t.client.keeper.TTL(t.held)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.handed = true
	return formatToken(tokenParts{kind: t.room.kind, op: t.op, ttl: ttl, fence: t.fence, secret: t.token, name: t.room.name})
}

// usable returns why the lease cannot be used any more: ErrNotHeld, ErrLost or ErrClosed; nil while it can.
func (l *Lease) usable() error {
	t := l.tenure
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended != nil:
		return t.ended
	case l.stage != stageOpen:
		return ErrNotHeld
	case t.client.keeper.Validity(t.held).Left(time.Now()) <= 0:
		return ErrLost
	}
	return nil
}
