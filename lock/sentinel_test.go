package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/lock"
)

// Contract: K1, K3
func TestLocksSurviveAFailoverOrSayThatTheyAreLost(t *testing.T) {
	s := redistest.StartSentinel(t)
	a, b := on(t, s.Client(), lock.Config{}), on(t, s.Client(), lock.Config{})
	held := must(t)(a.Mutex("held", lock.TTL(30*time.Second)).Lock(t.Context()))
	short := must(t)(a.Mutex("short", lock.TTL(300*time.Millisecond)).Lock(t.Context()))
	want(t, s.Primary.Client().Wait(t.Context(), 1, time.Second).Err(), nil)
	s.Failover()

	<-short.Context().Done()
	want(t, context.Cause(short.Context()), lock.ErrLost)
	next := lockAgain(t, b.Mutex("short"))
	if next.Fence() <= short.Fence() {
		t.Fatalf("fence %d after %d", next.Fence(), short.Fence())
	}
	_, err := b.Mutex("held").TryLock(t.Context())
	want(t, err, lock.ErrNotAcquired)
	until(t, func() bool { return held.Check(t.Context()) == nil })
	want(t, held.Release(t.Context()), nil)
	want(t, next.Release(t.Context()), nil)
}

// Contract: K1
func TestAFailoverToAReplicaThatNeverSawTheLeaseEndsItAndFencesRise(t *testing.T) {
	s := redistest.StartSentinel(t)
	a := on(t, s.Client(), lock.Config{})
	early := must(t)(a.Mutex("m").Lock(t.Context()))
	want(t, early.Release(t.Context()), nil)
	want(t, s.Primary.Client().Wait(t.Context(), 1, time.Second).Err(), nil)
	s.Replica.Pause()
	want(t, s.Primary.Client().ClientKillByFilter(t.Context(), "TYPE", "replica").Err(), nil) // what comes now it never hears
	unseen := must(t)(a.Mutex("m", lock.TTL(20*time.Second)).Lock(t.Context()))
	s.Primary.Kill()
	s.Replica.Resume()
	s.Failover()

	next := lockAgain(t, a.Mutex("another")) // the client has found the new primary
	want(t, next.Release(t.Context()), nil)
	until(t, func() bool { return unseen.Context().Err() != nil })
	want(t, context.Cause(unseen.Context()), lock.ErrLost)
	next = lockAgain(t, a.Mutex("m"))
	if next.Fence() <= unseen.Fence() {
		t.Fatalf("fence %d after %d", next.Fence(), unseen.Fence())
	}
}

// lockAgain locks as soon as the store can be asked.
func lockAgain(t *testing.T, m *lock.Mutex) (l *lock.Lease) {
	t.Helper()
	until(t, func() (ok bool) {
		var err error
		l, err = m.Lock(t.Context())
		return err == nil
	})
	return l
}
