package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/lock"
)

// Contract: K2
func TestLockWaitsPastTheTTLAndGetsAFullOne(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		held := must(w.t)(a.Mutex("m", lock.TTL(time.Second)).Lock(w.t.Context()))
		time.AfterFunc(3*time.Second, func() { _ = held.Release(context.Background()) })
		began := time.Now()
		l := must(w.t)(b.Mutex("m", lock.TTL(time.Second)).Lock(within(w.t, 5*time.Second)))
		if waited := time.Since(began); waited < 3*time.Second || waited > 3100*time.Millisecond {
			w.t.Fatalf("waited %v", waited)
		}
		if left := time.Until(l.Expires()); left < 950*time.Millisecond {
			w.t.Fatalf("%v left", left)
		}
		want(w.t, l.Release(w.t.Context()), nil)
	})
}

// Contract: K2
func TestTryLockDoesNotWait(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		held := must(w.t)(a.Mutex("m").TryLock(w.t.Context()))
		began := time.Now()
		for _, c := range []*lock.Client{a, b} {
			_, err := c.Mutex("m").TryLock(w.t.Context())
			want(w.t, err, lock.ErrNotAcquired)
		}
		if waited := time.Since(began); waited != 0 {
			w.t.Fatalf("waited %v", waited)
		}
		want(w.t, held.Release(w.t.Context()), nil)
		free := must(w.t)(b.Mutex("m").TryLock(w.t.Context()))
		want(w.t, free.Release(w.t.Context()), nil)
	})
}

// Contract: K2
func TestAWaitEndsWithItsContextAndSaysThatSomeoneElseHeldTheLock(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		held := must(w.t)(c.Mutex("m").Lock(w.t.Context()))
		_, err := c.Mutex("m").Lock(within(w.t, 50*time.Millisecond))
		want(w.t, err, lock.ErrNotAcquired)
		want(w.t, err, context.DeadlineExceeded)
		want(w.t, held.Release(w.t.Context()), nil)
	})
}

// Contract: K5
func TestAStoreThatGoesAwayIsUnavailableAtOnceForAllWhoWait(t *testing.T) {
	for what, breaks := range map[string]func(w *world, n *network){
		"refuses": func(w *world, _ *network) { w.server.SetError("OOM command not allowed") },
		"hangs":   func(_ *world, n *network) { n.set(func(n *network) { n.cut = time.Now().Add(time.Minute) }) },
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				a, _, closeA := w.redisClient(lock.Config{})
				defer closeA()
				n := &network{}
				b, _, closeB := w.clientOver(w.rdb(n), lock.Config{})
				defer closeB()
				held := must(w.t)(a.Mutex("m").Lock(w.t.Context()))
				errs := make(chan error, 10)
				for range 10 {
					go func() {
						_, err := b.Mutex("m").Lock(context.Background())
						errs <- err
					}()
				}
				synctest.Wait()
				breaks(w, n)
				began := time.Now()
				for range 10 {
					err := <-errs
					want(w.t, err, lock.ErrUnavailable)
					if errors.Is(err, lock.ErrNotAcquired) {
						w.t.Fatalf("%v", err)
					}
				}
				if took := time.Since(began); took > 1100*time.Millisecond { // a poll and a timeout
					w.t.Fatalf("took %v", took)
				}
				_, err := b.Mutex("m").TryLock(w.t.Context())
				want(w.t, err, lock.ErrUnavailable)
				w.server.SetError("")
				want(w.t, held.Release(w.t.Context()), nil)
				time.Sleep(time.Minute) // what was given up ends
			})
		})
	}
}

// Contract: K7
func TestTheSameNameInsideALeaseIsADeadlockOrACountedLease(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		outer := must(w.t)(c.Mutex("m").Lock(w.t.Context()))
		_, err := c.Mutex("m").Lock(outer.Context())
		want(w.t, err, lock.ErrDeadlock)
		_, err = c.Mutex("m").TryLock(outer.Context())
		want(w.t, err, lock.ErrDeadlock)
		other := must(w.t)(c.Mutex("another").Lock(outer.Context()))
		want(w.t, other.Release(w.t.Context()), nil)

		inner := must(w.t)(c.Mutex("m", lock.WithReentry()).Lock(outer.Context()))
		if inner.Fence() != outer.Fence() {
			w.t.Fatalf("fences %d and %d", inner.Fence(), outer.Fence())
		}
		want(w.t, outer.Release(w.t.Context()), nil)
		want(w.t, outer.Release(w.t.Context()), lock.ErrNotHeld)
		_, err = c.Mutex("m").TryLock(w.t.Context())
		want(w.t, err, lock.ErrNotAcquired)
		want(w.t, inner.Context().Err(), nil)
		want(w.t, inner.Release(w.t.Context()), nil)
		free := must(w.t)(c.Mutex("m").TryLock(w.t.Context()))
		want(w.t, free.Release(w.t.Context()), nil)
	})
}

// Contract: K7
func TestALeaseThatWasReleasedIsNoDeadlock(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		first := must(w.t)(c.Mutex("m").Lock(w.t.Context()))
		want(w.t, first.Release(w.t.Context()), nil)
		second := must(w.t)(c.Mutex("m").Lock(context.WithoutCancel(first.Context())))
		want(w.t, second.Release(w.t.Context()), nil)
	})
}

func TestWaitersOfOneProcessAreServedInTheirOrder(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.Mutex("m")
		held := must(w.t)(m.Lock(w.t.Context()))
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				l, err := m.Lock(context.Background())
				if err != nil {
					w.t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				_ = l.Release(context.Background())
			})
			synctest.Wait()
		}
		want(w.t, held.Release(w.t.Context()), nil)
		all.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			w.t.Fatalf("order %v", order)
		}
	})
}

func TestAWaiterInAnotherProcessIsWokenByTheRelease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		held := must(w.t)(a.Mutex("m").Lock(w.t.Context()))
		got := make(chan time.Time, 1)
		go func() {
			l, err := b.Mutex("m").Lock(context.Background())
			got <- time.Now()
			if err == nil {
				_ = l.Release(context.Background())
			}
		}()
		time.Sleep(1234 * time.Millisecond) // between two polls
		released := time.Now()
		want(w.t, held.Release(w.t.Context()), nil)
		if lag := (<-got).Sub(released); lag != 0 {
			w.t.Fatalf("woken %v after the release", lag)
		}
	})
}
