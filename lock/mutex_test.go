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

func TestCloseReleasesWhatIsHeldAndEndsEveryWait(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		held := must(w.t)(a.Mutex("m").Lock(w.t.Context()))
		elsewhere := must(w.t)(b.Mutex("elsewhere").Lock(w.t.Context()))
		errs := make(chan error, 2)
		for _, name := range []string{"m", "elsewhere"} {
			go func() {
				_, err := a.Mutex(name).Lock(context.Background())
				errs <- err
			}()
		}
		synctest.Wait()
		closeA()
		want(w.t, <-errs, lock.ErrClosed)
		want(w.t, <-errs, lock.ErrClosed)
		want(w.t, context.Cause(held.Context()), lock.ErrClosed)
		want(w.t, held.Release(w.t.Context()), lock.ErrClosed)
		_, err := a.Mutex("m").Lock(w.t.Context())
		want(w.t, err, lock.ErrClosed)
		want(w.t, a.Close(), nil)
		free := must(w.t)(b.Mutex("m").TryLock(w.t.Context()))
		want(w.t, free.Release(w.t.Context()), nil)
		want(w.t, elsewhere.Release(w.t.Context()), nil)
	})
}

func TestALeaseIsHandedOverByItsToken(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		given := must(w.t)(a.Mutex("m").Lock(w.t.Context()))
		token := given.Token()
		closeA()
		taken := must(w.t)(b.Adopt(w.t.Context(), token))
		if taken.Fence() != given.Fence() {
			w.t.Fatalf("fence %d became %d", given.Fence(), taken.Fence())
		}
		_, err := b.Adopt(w.t.Context(), token)
		want(w.t, err, lock.ErrNotHeld)
		time.Sleep(time.Minute)
		want(w.t, taken.Check(w.t.Context()), nil)
		want(w.t, taken.Release(w.t.Context()), nil)
	})
}

func TestTheGiverOfATokenLosesItsLeaseWhenItIsAdopted(t *testing.T) {
	for _, kind := range []string{"mutex", "semaphore", "read", "write"} {
		t.Run(kind, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				a, _, closeA := w.redisClient(lock.Config{})
				defer closeA()
				b, _, closeB := w.redisClient(lock.Config{})
				defer closeB()
				given := must(w.t)(map[string]func(context.Context) (*lock.Lease, error){
					"mutex":     a.Mutex("m").Lock,
					"semaphore": a.Semaphore("m", 1).Acquire,
					"read":      a.RWMutex("m").RLock,
					"write":     a.RWMutex("m").Lock,
				}[kind](w.t.Context()))
				taken := must(w.t)(b.Adopt(w.t.Context(), given.Token()))
				want(w.t, given.Check(w.t.Context()), lock.ErrLost)
				want(w.t, context.Cause(given.Context()), lock.ErrLost)
				want(w.t, taken.Check(w.t.Context()), nil)
				want(w.t, taken.Release(w.t.Context()), nil)
			})
		})
	}
}
