package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/onefill/onefill/lock"
)

// Contract: K1
func TestFencesRiseWithEveryLease(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		var last uint64
		for range 100 {
			l := must(w.t)(c.Mutex("m").Lock(w.t.Context()))
			if l.Fence() <= last {
				w.t.Fatalf("fence %d after %d", l.Fence(), last)
			}
			last = l.Fence()
			want(w.t, l.Release(w.t.Context()), nil)
		}
	})
}

// Contract: K1
func TestFencesRiseAfterFlushallAndWithAClockSetBack(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		first := must(w.t)(c.Mutex("m").Lock(w.t.Context()))
		want(w.t, first.Release(w.t.Context()), nil)
		w.server.FlushAll()
		w.server.SetTime(time.Now().Add(-time.Hour))
		second := must(w.t)(c.Mutex("m").Lock(w.t.Context()))
		if second.Fence() <= first.Fence() {
			w.t.Fatalf("fence %d after %d", second.Fence(), first.Fence())
		}
		want(w.t, second.Release(w.t.Context()), nil)
	})
}

// Contract: K1
func TestAFloorLiftsTheFence(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		const floor = 1<<53 - 100
		l := must(w.t)(c.Mutex("m", lock.Floor(floor)).Lock(w.t.Context()))
		if l.Fence() != floor+1 {
			w.t.Fatalf("fence %d, want %d", l.Fence(), uint64(floor+1))
		}
		want(w.t, l.Release(w.t.Context()), nil)
		l = must(w.t)(c.Mutex("m").Lock(w.t.Context()))
		if l.Fence() != floor+2 {
			w.t.Fatalf("fence %d, want %d", l.Fence(), uint64(floor+2))
		}
		want(w.t, l.Release(w.t.Context()), nil)
	})
}

// Contract: K1
func TestALostLeaseEndsItsContextBeforeItEndsInTheStoreWithoutAnAnswer(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		l := must(w.t)(c.Mutex("m", lock.TTL(time.Second)).Lock(w.t.Context()))
		granted := time.Now()
		w.server.SetError("LOADING")
		<-l.Context().Done()
		if took := time.Since(granted); took >= time.Second || took < 900*time.Millisecond {
			w.t.Fatalf("context ended after %v", took)
		}
		want(w.t, context.Cause(l.Context()), lock.ErrLost)
		w.server.SetError("")
		want(w.t, l.Release(w.t.Context()), lock.ErrLost)
		want(w.t, l.Release(w.t.Context()), lock.ErrNotHeld)
	})
}

// Contract: K1
func TestALeaseThatTheStoreForgotIsLostAtTheNextRenewal(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		l := must(w.t)(c.Mutex("m", lock.TTL(3*time.Second)).Lock(w.t.Context()))
		w.server.FlushAll()
		time.Sleep(1100 * time.Millisecond)
		want(w.t, context.Cause(l.Context()), lock.ErrLost)
	})
}

// Contract: K1, K4
func TestARenewalNeverTouchesTheLeaseOfAnother(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		old := must(w.t)(a.Mutex("m", lock.TTL(3*time.Second)).Lock(w.t.Context()))
		w.server.FlushAll()
		next := must(w.t)(b.Mutex("m", lock.TTL(20*time.Second)).Lock(w.t.Context()))
		time.Sleep(time.Second + time.Millisecond)
		want(w.t, context.Cause(old.Context()), lock.ErrLost)
		_ = next.Token() // Close leaves it be, like a crash
		closeB()
		_, err := a.Mutex("m").Lock(within(w.t, 18*time.Second))
		want(w.t, err, lock.ErrNotAcquired) // its TTL was not cut short
		l := must(w.t)(a.Mutex("m").Lock(within(w.t, 2*time.Second)))
		want(w.t, l.Release(w.t.Context()), nil)
	})
}

// Contract: K3
func TestALeaseIsRenewedUntilItIsReleased(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.Mutex("m", lock.TTL(time.Second))
		l := must(w.t)(m.Lock(w.t.Context()))
		time.Sleep(time.Minute)
		want(w.t, l.Context().Err(), nil)
		want(w.t, l.Check(w.t.Context()), nil)
		_, err := m.TryLock(w.t.Context())
		want(w.t, err, lock.ErrNotAcquired)
		want(w.t, l.Release(w.t.Context()), nil)
		if cause := context.Cause(l.Context()); cause != context.Canceled {
			w.t.Fatalf("cause %v after Release", cause)
		}
	})
}

// Contract: K3
func TestRenewChangesTheTTLForGood(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		l := must(w.t)(c.Mutex("m", lock.TTL(time.Second)).Lock(w.t.Context()))
		want(w.t, l.Renew(w.t.Context(), time.Minute), nil)
		time.Sleep(10 * time.Second)
		if left := time.Until(l.Expires()); left < 49*time.Second-time.Minute/100 || left > 50*time.Second {
			w.t.Fatalf("%v left 10 s after a renewal for a minute", left)
		}
		want(w.t, l.Renew(w.t.Context(), 200*time.Millisecond), nil)
		w.server.SetError("LOADING")
		time.Sleep(200 * time.Millisecond)
		want(w.t, context.Cause(l.Context()), lock.ErrLost)
		w.server.SetError("")
	})
}

// Contract: K3
func TestAHolderThatStopsRenewingIsReplacedWithinItsTTLAndAHalfSecond(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		dead := must(w.t)(c.Mutex("m", lock.TTL(2*time.Second)).Lock(w.t.Context()))
		other, _, closeOther := w.redisClient(lock.Config{})
		defer closeOther()
		token := dead.Token() // Close leaves it be, like a crash
		if token == "" {
			w.t.Fatal("no token")
		}
		crashed := time.Now()
		want(w.t, c.Close(), nil)
		l := must(w.t)(other.Mutex("m").Lock(within(w.t, time.Minute)))
		if took := time.Since(crashed); took > 2500*time.Millisecond || took < 1900*time.Millisecond {
			w.t.Fatalf("replaced after %v", took)
		}
		if l.Fence() <= dead.Fence() {
			w.t.Fatalf("fence %d after %d", l.Fence(), dead.Fence())
		}
		want(w.t, l.Release(w.t.Context()), nil)
	})
}
