package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/lock"
)

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
