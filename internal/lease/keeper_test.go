package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/internal/lease"
	"github.com/onefill/onefill/internal/tasks"
)

// shop is a store that renews what it is asked to, in fake time.
type shop struct {
	mu     sync.Mutex // guards everything below
	rounds []int      // how many leases each round had
	err    error
	gone   map[int]bool
	slow   time.Duration
	lost   map[int]time.Time
}

func (s *shop) renew(_ context.Context, round []lease.Renewal[int], _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	slow := s.slow
	s.mu.Unlock()
	time.Sleep(slow)
	s.mu.Lock()
	s.rounds = append(s.rounds, len(round))
	for i := range round {
		round[i].Kept = !s.gone[round[i].Lease]
	}
	return s.err
}

// sleep lets others at the shop for a while.
func (s *shop) sleep(d time.Duration) {
	s.mu.Unlock()
	time.Sleep(d)
	s.mu.Lock()
}

func (s *shop) loses(of int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost[of] = time.Now()
}

// keeping runs a scenario with a Keeper in a bubble.
func keeping(t *testing.T, scenario func(t *testing.T, s *shop, k *lease.Keeper[int])) {
	synctest.Test(t, func(t *testing.T) {
		set := tasks.New()
		s := &shop{gone: make(map[int]bool), lost: make(map[int]time.Time)}
		s.mu.Lock() // a scenario holds it but while it sleeps
		scenario(t, s, lease.NewKeeper(set, s.renew))
		s.mu.Unlock()
		if err := set.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func keep(t *testing.T, s *shop, k *lease.Keeper[int], of int, ttl time.Duration) *lease.Held[int] {
	t.Helper()
	h := lease.NewHeld(of, ttl, time.Now(), s.loses)
	if !k.Keep(h) {
		t.Fatal("not kept")
	}
	return h
}

func TestLeasesOfOneTTLShareOneRoundPerThirdOfIt(t *testing.T) {
	keeping(t, func(t *testing.T, s *shop, k *lease.Keeper[int]) {
		for i := range 1000 {
			keep(t, s, k, i, 3*time.Second)
			s.sleep(time.Millisecond)
		}
		s.sleep(9 * time.Second)
		s.rounds = nil
		s.sleep(9*time.Second + time.Millisecond)
		total := 0
		for _, n := range s.rounds {
			total += n
		}
		if len(s.rounds) > 20 || total < 9000 || total > 18_000 {
			t.Fatalf("%d rounds, %d renewals in 9 thirds of the TTL: %v", len(s.rounds), total, s.rounds)
		}
		if len(s.lost) > 0 {
			t.Fatalf("lost %v", s.lost)
		}
	})
}

func TestALeaseIsTriedAgainUntilItRunsOutAndIsLostByTheOwnClock(t *testing.T) {
	keeping(t, func(t *testing.T, s *shop, k *lease.Keeper[int]) {
		s.err = errors.New("down")
		began := time.Now()
		h := keep(t, s, k, 7, time.Second)
		s.sleep(2 * time.Second)
		if after := s.lost[7].Sub(began); after != 988*time.Millisecond {
			t.Fatalf("lost after %v", after)
		}
		if len(s.rounds) < 5 {
			t.Fatalf("tried %d times", len(s.rounds))
		}
		if k.Drop(h) {
			t.Fatal("a lost lease was kept")
		}
	})
}

func TestALeaseThatComesBackInTimeIsKept(t *testing.T) {
	keeping(t, func(t *testing.T, s *shop, k *lease.Keeper[int]) {
		s.err = errors.New("down")
		h := keep(t, s, k, 7, time.Second)
		s.sleep(900 * time.Millisecond)
		s.err = nil
		s.sleep(time.Minute)
		if len(s.lost) > 0 || k.Validity(h).Left(time.Now()) < 600*time.Millisecond {
			t.Fatalf("lost %v, %v left", s.lost, k.Validity(h).Left(time.Now()))
		}
		if !k.Drop(h) || k.Drop(h) {
			t.Fatal("dropped not once")
		}
	})
}

func TestALeaseThatTheStoreDoesNotKnowIsLostAtOnceAndAlone(t *testing.T) {
	keeping(t, func(t *testing.T, s *shop, k *lease.Keeper[int]) {
		began := time.Now()
		keep(t, s, k, 1, 3*time.Second)
		keep(t, s, k, 2, 3*time.Second)
		s.gone[2] = true
		s.sleep(time.Minute)
		if after := s.lost[2].Sub(began); after != time.Second || len(s.lost) != 1 {
			t.Fatalf("lost %v", s.lost)
		}
	})
}

func TestAnOlderRenewalSaysNothingAboutAnExtension(t *testing.T) {
	keeping(t, func(t *testing.T, s *shop, k *lease.Keeper[int]) {
		s.slow = 500 * time.Millisecond
		h := keep(t, s, k, 1, time.Minute)
		s.sleep(20*time.Second + 100*time.Millisecond) // a renewal for a minute is under way
		if !k.Extend(h, time.Second, time.Now()) {
			t.Fatal("not extended")
		}
		extended := time.Now()
		s.sleep(450 * time.Millisecond) // and answered, with success
		s.err = errors.New("down")
		s.sleep(2 * time.Second)
		if after := s.lost[1].Sub(extended); after != 988*time.Millisecond {
			t.Fatalf("lost after %v", after)
		}
		if k.Extend(h, time.Second, time.Now()) {
			t.Fatal("a lost lease was extended")
		}
	})
}

func TestAKeeperWithoutLeasesHoldsNoTimer(t *testing.T) {
	keeping(t, func(t *testing.T, s *shop, k *lease.Keeper[int]) {
		for i := range 10_000 {
			k.Drop(keep(t, s, k, i, time.Second))
		}
		s.sleep(time.Hour)
		if len(s.rounds) != 0 || len(k.Kept()) != 0 {
			t.Fatalf("%d rounds, %d leases", len(s.rounds), len(k.Kept()))
		}
	})
}
