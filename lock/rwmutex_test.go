package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/lock"
)

// Contract: K6
func TestManyReadersForThreeTTLsOrOneWriter(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.RWMutex("m", lock.TTL(time.Second))
		var readers []*lock.Lease
		for range 3 {
			readers = append(readers, must(w.t)(m.RLock(w.t.Context())))
		}
		time.Sleep(3 * time.Second)
		_, err := m.TryLock(w.t.Context())
		want(w.t, err, lock.ErrNotAcquired)
		for _, r := range readers {
			want(w.t, r.Check(w.t.Context()), nil)
			want(w.t, r.Release(w.t.Context()), nil)
		}
		writer := must(w.t)(m.TryLock(w.t.Context()))
		for _, try := range []func(context.Context) (*lock.Lease, error){m.TryLock, m.TryRLock} {
			_, err = try(w.t.Context())
			want(w.t, err, lock.ErrNotAcquired)
		}
		want(w.t, writer.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestAWaitingWriterKeepsNewReadersOut(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		reader := must(w.t)(a.RWMutex("m").RLock(w.t.Context()))
		got := make(chan *lock.Lease, 1)
		go func() {
			l, _ := b.RWMutex("m").Lock(context.Background())
			got <- l
		}()
		synctest.Wait()
		time.Sleep(30 * time.Second) // three TTLs of the intent
		_, err := a.RWMutex("m").TryRLock(w.t.Context())
		want(w.t, err, lock.ErrNotAcquired)
		want(w.t, reader.Release(w.t.Context()), nil)
		writer := <-got
		want(w.t, writer.Release(w.t.Context()), nil)
		reader = must(w.t)(a.RWMutex("m").TryRLock(w.t.Context()))
		want(w.t, reader.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestAWriterThatGivesUpLetsReadersInAtOnce(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		reader := must(w.t)(a.RWMutex("m").RLock(w.t.Context()))
		_, err := b.RWMutex("m").Lock(within(w.t, 100*time.Millisecond))
		want(w.t, err, lock.ErrNotAcquired)
		synctest.Wait()
		second := must(w.t)(a.RWMutex("m").TryRLock(w.t.Context()))
		want(w.t, second.Release(w.t.Context()), nil)
		want(w.t, reader.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestAWaitingWriterThatDiesKeepsReadersOutNoLongerThanItsTTL(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		reader := must(w.t)(a.RWMutex("m").RLock(w.t.Context()))
		go func() { _, _ = b.RWMutex("m", lock.TTL(2*time.Second)).Lock(context.Background()) }()
		time.Sleep(5 * time.Second)
		closeB() // which withdraws nothing, like a crash
		died := time.Now()
		second := must(w.t)(a.RWMutex("m").RLock(within(w.t, time.Minute)))
		if took := time.Since(died); took > 2500*time.Millisecond || took < 500*time.Millisecond {
			w.t.Fatalf("kept out for %v", took)
		}
		want(w.t, second.Release(w.t.Context()), nil)
		want(w.t, reader.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestAReaderThatDiesLetsTheWriterInAfterItsTTL(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		reader := must(w.t)(a.RWMutex("m", lock.TTL(2*time.Second)).RLock(w.t.Context()))
		_ = reader.Token() // Close leaves it be, like a crash
		closeA()
		died := time.Now()
		writer := must(w.t)(b.RWMutex("m").Lock(within(w.t, time.Minute)))
		if took := time.Since(died); took > 2500*time.Millisecond || took < 1900*time.Millisecond {
			w.t.Fatalf("let in after %v", took)
		}
		want(w.t, writer.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestAReaderIsUpgradedAheadOfAWaitingWriter(t *testing.T) {
	inFakeTime(t, func(w *world) {
		a, _, closeA := w.redisClient(lock.Config{})
		defer closeA()
		b, _, closeB := w.redisClient(lock.Config{})
		defer closeB()
		m := a.RWMutex("m")
		first, second := must(w.t)(m.RLock(w.t.Context())), must(w.t)(m.RLock(w.t.Context()))
		got := make(chan *lock.Lease, 1)
		go func() {
			l, _ := b.RWMutex("m").Lock(context.Background())
			got <- l
		}()
		synctest.Wait()
		before := first.Fence()
		time.AfterFunc(20*time.Second, func() { _ = second.Release(context.Background()) })
		began := time.Now()
		want(w.t, first.Upgrade(w.t.Context()), nil)
		if took := time.Since(began); took != 20*time.Second {
			w.t.Fatalf("upgraded after %v", took)
		}
		if first.Fence() <= before {
			w.t.Fatalf("fence %d after %d", first.Fence(), before)
		}
		synctest.Wait()
		if len(got) != 0 {
			w.t.Fatal("the writer got in beside the upgraded reader")
		}
		time.Sleep(time.Minute)
		want(w.t, first.Check(w.t.Context()), nil)
		want(w.t, first.Downgrade(w.t.Context()), nil)
		time.Sleep(time.Minute)
		want(w.t, first.Check(w.t.Context()), nil)
		want(w.t, first.Release(w.t.Context()), nil)
		writer := <-got
		if writer.Fence() <= first.Fence() {
			w.t.Fatalf("fence %d after %d", writer.Fence(), first.Fence())
		}
		want(w.t, writer.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestOfTwoUpgradersOneGetsAConflictAtOnce(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.RWMutex("m")
		first, second := must(w.t)(m.RLock(w.t.Context())), must(w.t)(m.RLock(w.t.Context()))
		upgraded := make(chan error, 1)
		go func() { upgraded <- first.Upgrade(context.Background()) }()
		synctest.Wait()
		began := time.Now()
		want(w.t, second.Upgrade(w.t.Context()), lock.ErrConflict)
		if took := time.Since(began); took != 0 {
			w.t.Fatalf("conflict after %v", took)
		}
		want(w.t, second.Check(w.t.Context()), nil)
		want(w.t, second.Release(w.t.Context()), nil)
		want(w.t, <-upgraded, nil)
		want(w.t, first.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestAnUpgradeThatGivesUpStaysAReaderAndLetsOthersIn(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.RWMutex("m")
		first, second := must(w.t)(m.RLock(w.t.Context())), must(w.t)(m.RLock(w.t.Context()))
		want(w.t, first.Upgrade(within(w.t, time.Second)), lock.ErrNotAcquired)
		synctest.Wait()
		want(w.t, first.Check(w.t.Context()), nil)
		third := must(w.t)(m.TryRLock(w.t.Context()))
		for _, l := range []*lock.Lease{first, second, third} {
			want(w.t, l.Release(w.t.Context()), nil)
		}
		free := must(w.t)(m.TryLock(w.t.Context()))
		want(w.t, free.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestADowngradeLetsReadersInAndKeepsWritersOut(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.RWMutex("m")
		l := must(w.t)(m.Lock(w.t.Context()))
		got := make(chan error, 1)
		go func() {
			r, err := m.RLock(context.Background())
			if err == nil {
				err = r.Release(context.Background())
			}
			got <- err
		}()
		synctest.Wait()
		want(w.t, l.Downgrade(w.t.Context()), nil)
		want(w.t, <-got, nil)
		_, err := m.TryLock(w.t.Context())
		want(w.t, err, lock.ErrNotAcquired)
		want(w.t, l.Downgrade(w.t.Context()), lock.ErrInvalid)
		want(w.t, l.Upgrade(w.t.Context()), nil)
		want(w.t, l.Upgrade(w.t.Context()), lock.ErrInvalid)
		want(w.t, l.Release(w.t.Context()), nil)
	})
}

// Contract: K6
func TestALeaseLostWhileItWaitsForItsUpgradeSaysSo(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		m := c.RWMutex("m")
		first, second := must(w.t)(m.RLock(w.t.Context())), must(w.t)(m.RLock(w.t.Context()))
		upgraded := make(chan error, 1)
		go func() { upgraded <- first.Upgrade(context.Background()) }()
		synctest.Wait()
		w.server.FlushAll()
		want(w.t, <-upgraded, lock.ErrLost)
		want(w.t, first.Release(w.t.Context()), lock.ErrLost)
		if err := second.Release(w.t.Context()); !errors.Is(err, lock.ErrLost) {
			w.t.Fatal(err)
		}
	})
}

// Contract: K7
func TestAWriteLeaseWithinAReadLeaseIsADeadlockEvenWithReentry(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		m := c.RWMutex("m", lock.WithReentry())
		reader := must(w.t)(m.RLock(w.t.Context()))
		_, err := m.Lock(reader.Context())
		want(w.t, err, lock.ErrDeadlock)
		inner := must(w.t)(m.RLock(reader.Context()))
		want(w.t, inner.Release(w.t.Context()), nil)
		want(w.t, reader.Upgrade(w.t.Context()), nil)
		within := must(w.t)(m.RLock(reader.Context()))
		want(w.t, within.Release(w.t.Context()), nil)
		want(w.t, reader.Release(w.t.Context()), nil)
	})
}
