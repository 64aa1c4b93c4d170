package lock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/onefill/onefill/lock"
)

// Contract: K4
func TestALateReleaseLeavesTheNextHolderItsLock(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		late := must(w.t)(a.Mutex("m", lock.TTL(10*time.Second)).Lock(w.t.Context()))
		w.server.FlushAll() // unknown to the first holder
		next := must(w.t)(b.Mutex("m").Lock(w.t.Context()))
		want(w.t, late.Release(w.t.Context()), lock.ErrLost)
		want(w.t, late.Release(w.t.Context()), lock.ErrNotHeld)
		want(w.t, next.Check(w.t.Context()), nil)
		_, err := a.Mutex("m").TryLock(w.t.Context())
		want(w.t, err, lock.ErrNotAcquired)
		want(w.t, next.Release(w.t.Context()), nil)
	})
}

// Contract: K4
func TestAReleaseThatFailedIsNotNilAndCanBeRepeated(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		l := must(w.t)(c.Mutex("m").Lock(w.t.Context()))
		w.server.SetError("LOADING")
		want(w.t, l.Release(w.t.Context()), lock.ErrUnavailable)
		want(w.t, l.Check(w.t.Context()), lock.ErrNotHeld)
		w.server.SetError("")
		want(w.t, l.Release(w.t.Context()), nil)
		want(w.t, l.Release(w.t.Context()), lock.ErrNotHeld)
		free := must(w.t)(c.Mutex("m").TryLock(w.t.Context()))
		want(w.t, free.Release(w.t.Context()), nil)
	})
}

// Contract: K4
func TestReleaseWorksOnACancelledContext(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		ctx, cancel := context.WithCancel(w.t.Context())
		l := must(w.t)(c.Mutex("m").Lock(ctx))
		cancel()
		want(w.t, l.Context().Err(), nil)
		want(w.t, l.Release(ctx), nil)
	})
}

// Contract: K10
func TestDoReleasesWhateverHappens(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.Mutex("m")
		failure := errors.New("failure")
		err := m.Do(w.t.Context(), func(ctx context.Context, l *lock.Lease) error {
			if l.Fence() == 0 {
				w.t.Error("no fence")
			}
			_, err := m.TryLock(ctx)
			want(w.t, err, lock.ErrDeadlock)
			return failure
		})
		want(w.t, err, failure)
		func() {
			defer func() { _ = recover() }()
			_ = m.Do(w.t.Context(), func(context.Context, *lock.Lease) error { panic("panic") })
		}()
		free := must(w.t)(m.TryLock(w.t.Context()))
		want(w.t, free.Release(w.t.Context()), nil)
		want(w.t, m.Do(w.t.Context(), func(context.Context, *lock.Lease) error { return nil }), nil)
	})
}

// Contract: K10
func TestDoSaysThatTheLeaseWasLostWhileTheWorkRan(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		err := c.Mutex("m").Do(w.t.Context(), func(ctx context.Context, _ *lock.Lease) error {
			w.server.FlushAll()
			<-ctx.Done()
			want(w.t, context.Cause(ctx), lock.ErrLost)
			return nil
		})
		want(w.t, err, lock.ErrLost)
	})
}
