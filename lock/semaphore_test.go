package lock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onefill/onefill/lock"
)

// Contract: K8
func TestNeverMoreThanNHoldPermits(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		s := c.Semaphore("s", 4)
		var inside, most atomic.Int32
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				err := s.Do(context.Background(), func(context.Context, *lock.Lease) error {
					n := inside.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(time.Second)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					w.t.Error(err)
				}
			})
		}
		began := time.Now()
		all.Wait()
		if most.Load() != 4 {
			w.t.Fatalf("%d held permits at once", most.Load())
		}
		if took := time.Since(began); took > 6*time.Second {
			w.t.Fatalf("20 jobs of 1 s took %v", took)
		}
	})
}

// Contract: K8
func TestPermitsAreCountedOverAllProcesses(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		one, two := must(w.t)(a.Semaphore("s", 2).Acquire(w.t.Context())), must(w.t)(b.Semaphore("s", 2).Acquire(w.t.Context()))
		for _, c := range []*lock.Client{a, b} {
			_, err := c.Semaphore("s", 2).TryAcquire(w.t.Context())
			want(w.t, err, lock.ErrNotAcquired)
		}
		want(w.t, one.Release(w.t.Context()), nil)
		want(w.t, one.Release(w.t.Context()), lock.ErrNotHeld)
		three := must(w.t)(b.Semaphore("s", 2).TryAcquire(w.t.Context()))
		_, err := a.Semaphore("s", 2).TryAcquire(w.t.Context())
		want(w.t, err, lock.ErrNotAcquired)
		want(w.t, two.Release(w.t.Context()), nil)
		want(w.t, three.Release(w.t.Context()), nil)
	})
}

// Contract: K8
func TestADeadHoldersPermitIsBackWithinItsTTL(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		alive := must(w.t)(b.Semaphore("s", 2).Acquire(w.t.Context()))
		dead := must(w.t)(a.Semaphore("s", 2, lock.TTL(2*time.Second)).Acquire(w.t.Context()))
		_ = dead.Token() // Close leaves it be, like a crash
		closeA()
		died := time.Now()
		l := must(w.t)(b.Semaphore("s", 2).Acquire(within(w.t, time.Minute)))
		if took := time.Since(died); took > 2500*time.Millisecond || took < 1900*time.Millisecond {
			w.t.Fatalf("permit back after %v", took)
		}
		want(w.t, l.Release(w.t.Context()), nil)
		want(w.t, alive.Check(w.t.Context()), nil)
		want(w.t, alive.Release(w.t.Context()), nil)
	})
}
