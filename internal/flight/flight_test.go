package flight_test

// Flights from the outside: who leads, who waits, who leaves, what Detach and abandoning do. Waits of flights for each other are in graph_test.go.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/internal/flight"
)

type group = flight.Group[string]

// Contract: R2
func TestAllWhoJoinBeforeTheEndShareOneFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		leaders := 0
		var running sync.WaitGroup
		for range 100 {
			running.Go(func() {
				c, leads := g.Join("key")
				if leads {
					leaders++
					go func() { time.Sleep(time.Second); g.Finish(c, "value", nil) }()
				}
				if v, err := g.Wait(t.Context(), c, nil); v != "value" || err != nil {
					t.Errorf("%q, %v", v, err)
				}
			})
		}
		running.Wait()
		if leaders != 1 || g.Len() != 0 {
			t.Errorf("%d leaders, %d flights left", leaders, g.Len())
		}
	})
}

func TestFlightsOfDifferentKeysAreDifferent(t *testing.T) {
	var g group
	a, leadsA := g.Join("a")
	b, leadsB := g.Join("b")
	if !leadsA || !leadsB || a == b || a.Key() != "a" || b.Key() != "b" || g.Len() != 2 || a.ID() == b.ID() || a.ID() == 0 {
		t.Errorf("%t, %t, %d flights", leadsA, leadsB, g.Len())
	}
}

// Contract: R3
func TestWhoJoinsAfterTheEndLeadsANewFlight(t *testing.T) {
	var g group
	c, _ := g.Join("key")
	g.Join("key")
	if joined, first := g.Finish(c, "value", nil); joined != 1 || !first {
		t.Errorf("%d joined, first: %t", joined, first)
	}
	if joined, first := g.Finish(c, "another", errors.New("late")); joined != 0 || first {
		t.Errorf("the second end: %d joined, first: %t", joined, first)
	}
	<-c.Done()
	if v, err := c.Result(); v != "value" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if _, leads := g.Join("key"); !leads {
		t.Error("a flight that has ended was joined")
	}
}

// Contract: R4
func TestWaitEndsWithItsContextAndTheFlightGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		c, _ := g.Join("key")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := g.Wait(ctx, c, nil); err != context.DeadlineExceeded || time.Since(began) != time.Second { // its very own error
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if !g.Attached(c) {
			t.Error("the flight ended with its only waiter")
		}
		g.Finish(c, "value", nil)
		if v, err := g.Wait(ctx, c, nil); v != "value" || err != nil {
			t.Errorf("a value that is there is worth more than the end of the context: %q, %v", v, err)
		}
	})
}

// Contract: R5, R18
func TestAbandonableFlightGivesUpWithItsLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		c, _ := g.Join("key")
		g.Join("key")
		gone, ok := g.Abandonable(c, true)
		if !ok {
			t.Fatal("it was gone at once")
		}
		g.Leave(c)
		if gone.Err() != nil {
			t.Fatal("it gave up with one waiter left")
		}
		g.Leave(c)
		if gone.Err() == nil || g.Attached(c) {
			t.Error("it did not give up")
		}
		if _, ok := g.Abandonable(c, false); ok {
			t.Error("it can be taken back")
		}
		if _, leads := g.Join("key"); !leads {
			t.Error("a flight that was given up was joined")
		}
	})
}

func TestFlightIsAbandonedOnlyWhileItMayBe(t *testing.T) {
	var g group
	c, _ := g.Join("key")
	g.Leave(c)
	if !g.Attached(c) {
		t.Fatal("it was abandoned before it was abandonable")
	}
	if gone, ok := g.Abandonable(c, true); ok || gone.Err() == nil { // nobody waits any more
		t.Error("it went on without anybody")
	}
	c, _ = g.Join("key")
	g.Abandonable(c, true)
	g.Abandonable(c, false)
	g.Leave(c)
	if !g.Attached(c) {
		t.Error("it was abandoned after it was abandonable")
	}
	c, _ = g.Join("held")
	g.Abandonable(c, true)
	g.Hold(c)
	g.Leave(c)
	if !g.Attached(c) {
		t.Error("it was abandoned although it was held")
	}
}

// Contract: I2
func TestDetachedFlightKeepsItsWaitersAndGetsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		before, _ := g.Join("key")
		g.Mark(before, 7)
		g.Mark(before, 5)
		if mark := g.Detach("key"); mark != 7 || g.Attached(before) {
			t.Errorf("mark %d, attached: %t", mark, g.Attached(before))
		}
		if mark := g.Detach("key"); mark != 0 {
			t.Errorf("mark %d of no flight", mark)
		}
		after, leads := g.Join("key")
		if !leads || after == before {
			t.Error("a detached flight was joined")
		}
		g.Finish(before, "old", nil)
		if !g.Attached(after) {
			t.Error("the end of the old flight removed the new one")
		}
		g.Finish(after, "new", nil)
		for want, c := range map[string]*flight.Call[string]{"old": before, "new": after} {
			if v, err := g.Wait(t.Context(), c, nil); v != want || err != nil {
				t.Errorf("%q, %v: want %q", v, err, want)
			}
		}
	})
}

// Contract: I6
func TestDetachAllDetachesEveryFlight(t *testing.T) {
	var g group
	for i := range 10 {
		c, _ := g.Join(fmt.Sprint(i))
		g.Mark(c, uint64(i))
	}
	if mark := g.DetachAll(); mark != 9 || g.Len() != 0 {
		t.Errorf("mark %d, %d flights left", mark, g.Len())
	}
}

// Contract: P10
func TestDrainWaitsForAllFlightsOrItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		g.Drain(t.Context()) // nothing is under way
		for i := range 3 {
			c, _ := g.Join(fmt.Sprint(i))
			time.AfterFunc(time.Duration(i+1)*time.Second, func() { g.Finish(c, "", nil) })
		}
		began := time.Now()
		short, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		if g.Drain(short); time.Since(began) != time.Second/2 {
			t.Errorf("it drained for %v", time.Since(began))
		}
		if g.Drain(t.Context()); time.Since(began) != 3*time.Second || g.Len() != 0 {
			t.Errorf("it drained for %v, %d flights left", time.Since(began), g.Len())
		}
	})
}
