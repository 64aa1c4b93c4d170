package flight_test

// Flights that wait for flights: cycles in one process, cycles through others, and what the others are told.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/internal/flight"
)

type calls = []*flight.Call[string]

// fly starts n flights that nobody ends.
func fly(g *group, n int) (all calls) {
	for i := range n {
		c, _ := g.Join(fmt.Sprint(i))
		all = append(all, c)
	}
	return all
}

// waits lets from wait for c and sends what comes of it.
func waits(ctx context.Context, g *group, from, c *flight.Call[string]) <-chan error {
	result := make(chan error, 1)
	g.Join(c.Key())
	go func() {
		_, err := g.Wait(ctx, c, &from.Node)
		result <- err
	}()
	synctest.Wait()
	return result
}

// Contract: R9
func TestWaitThatClosesACycleEndsAtOnce(t *testing.T) {
	for n := 1; n <= 4; n++ {
		synctest.Test(t, func(t *testing.T) {
			var g group
			all := fly(&g, n)
			var open []<-chan error
			for i := range n - 1 {
				open = append(open, waits(t.Context(), &g, all[i], all[i+1]))
			}
			select {
			case err := <-waits(t.Context(), &g, all[n-1], all[0]):
				if !errors.Is(err, flight.ErrCycle) {
					t.Errorf("a cycle of %d: %v", n, err)
				}
			default:
				t.Errorf("a cycle of %d was not seen", n)
			}
			for i, c := range all[1:] {
				g.Finish(c, "", nil)
				if err := <-open[i]; err != nil {
					t.Errorf("a cycle of %d: a wait that did not close it: %v", n, err)
				}
			}
		})
	}
}

// Contract: R9
func TestWaitThatHasEndedIsNoPartOfACycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		all := fly(&g, 2)
		ctx, cancel := context.WithCancel(t.Context())
		first := waits(ctx, &g, all[0], all[1])
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		second := waits(t.Context(), &g, all[1], all[0])
		g.Finish(all[0], "", nil)
		if err := <-second; err != nil {
			t.Errorf("nothing waits the other way any more: %v", err)
		}
	})
}

// One flight may wait for another several times at once, for a loader reads in parallel.
//
// Contract: R9
func TestWaitCountsAsLongAsOneOfItsKindIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		all := fly(&g, 2)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := waits(ctx, &g, all[0], all[1]), waits(t.Context(), &g, all[0], all[1])
		cancel()
		<-first
		if err := <-waits(t.Context(), &g, all[1], all[0]); !errors.Is(err, flight.ErrCycle) {
			t.Errorf("the second wait was forgotten with the first: %v", err)
		}
		g.Finish(all[1], "", nil)
		<-second
	})
}

func TestEndedFlightIsNoCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		c, _ := g.Join("key")
		g.Finish(c, "value", nil)
		if v, err := g.Wait(t.Context(), c, &c.Node); v != "value" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
	})
}

// The fill of a here waits for a question about b, whose fill elsewhere waits for a question about a, which our fill of a is to answer.
//
// Contract: R9
func TestCycleThroughAnotherProcessIsSeenWhicheverSideHearsFirst(t *testing.T) {
	for _, heardFirst := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var fills, asks group
			fill, _ := fills.Join("a")
			ask, _ := asks.Join("b")
			news := []uint64{12345, fill.ID()}
			if heardFirst {
				ask.SetRemote(news)
			}
			result := waits(t.Context(), &asks, fill, ask)
			if !heardFirst {
				select {
				case err := <-result:
					t.Fatalf("before there was a cycle: %v", err)
				default:
				}
				ask.SetRemote([]uint64{12345}) // of no concern
				ask.SetRemote(news)
			}
			if err := <-result; !errors.Is(err, flight.ErrCycle) {
				t.Errorf("heard first: %t: %v", heardFirst, err)
			}
		})
	}
}

// Contract: R9
func TestLongCycleThroughAnotherProcessBreaksTheWaitForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g, asks group
		all := fly(&g, 3)
		ask, _ := asks.Join("elsewhere")
		inner := waits(t.Context(), &g, all[0], all[1])
		middle := waits(t.Context(), &g, all[1], all[2])
		outer := waits(t.Context(), &asks, all[2], ask)
		ask.SetRemote([]uint64{all[0].ID()})
		if err := <-outer; !errors.Is(err, flight.ErrCycle) {
			t.Errorf("the wait for the other process: %v", err)
		}
		g.Finish(all[2], "", nil)
		g.Finish(all[1], "", nil)
		if err := errors.Join(<-inner, <-middle); err != nil {
			t.Errorf("the waits within this one: %v", err)
		}
	})
}

// Contract: R9
func TestWatcherIsToldAllThatAFlightWaitsForWhenItChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g, asks group
		all := fly(&g, 2)
		ask, _ := asks.Join("elsewhere")
		var mu sync.Mutex
		var told [][]uint64
		stop := all[0].Watch(func(ids []uint64) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, slices.Clone(ids))
		})
		first := waits(t.Context(), &g, all[0], all[1])
		second := waits(t.Context(), &asks, all[1], ask)
		ask.SetRemote([]uint64{99})
		for i, want := range [][]uint64{{all[0].ID(), all[1].ID()}, {all[0].ID(), all[1].ID(), ask.ID()}, {all[0].ID(), all[1].ID(), ask.ID(), 99}} {
			if len(told) != 3 || !slices.Equal(told[i], want) {
				t.Errorf("told %v: number %d should be %v", told, i, want)
			}
		}
		var late []uint64
		stopLate := all[1].Watch(func(ids []uint64) { late = ids }) // what there is already is told at once
		if len(late) != 3 {
			t.Errorf("a late watcher was told %v", late)
		}
		stop()
		stopLate()
		ask.SetRemote([]uint64{99, 100})
		if len(told) != 3 || len(late) != 3 {
			t.Errorf("told after the end: %v, %v", told, late)
		}
		asks.Finish(ask, "", nil)
		g.Finish(all[1], "", nil)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
	})
}

// One call of a batch loader serves several flights: who waits for one of them waits for what the call does for another.
//
// Contract: R9
func TestFollowerIsPartOfItsLeadersCycles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		all := fly(&g, 3)
		leader, follower, other := all[0], all[1], all[2]
		stop := follower.Follow(&leader.Node)
		leader.Follow(&leader.Node)() // itself: nothing to note
		first := waits(t.Context(), &g, leader, other)
		if err := <-waits(t.Context(), &g, other, follower); !errors.Is(err, flight.ErrCycle) {
			t.Errorf("while it follows: %v", err)
		}
		stop()
		second := waits(t.Context(), &g, other, follower)
		g.Finish(follower, "", nil)
		g.Finish(other, "", nil)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Errorf("when it no longer follows: %v", err)
		}
	})
}

// Hundreds of flights that read each other at random, in parallel: whatever cycles that makes, all end.
//
// Contract: R9
func TestFlightsThatWaitAtRandomAllEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g group
		const n = 200
		all := fly(&g, n)
		began := time.Now()
		var running sync.WaitGroup
		for i, c := range all {
			running.Go(func() {
				for k := 1; k <= 5; k++ {
					next := all[(i*k*7+k*13)%n]
					g.Hold(next) // Wait includes Leave
					if _, err := g.Wait(t.Context(), next, &c.Node); err != nil && !errors.Is(err, flight.ErrCycle) {
						t.Error(err)
					}
					time.Sleep(time.Millisecond)
				}
				g.Finish(c, "", nil)
			})
		}
		running.Wait()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A Wait whose context has ended before notes its wait and takes it back; who was told of the one must be told of the other.
//
// Contract: R9
func TestWatcherIsToldThatAWaitHasEndedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g, elsewhere group
		all := fly(&g, 2)
		var told []uint64
		defer all[0].Watch(func(ids []uint64) { told = slices.Clone(ids) })()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := <-waits(ended, &g, all[0], all[1]); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if len(told) > 1 {
			t.Errorf("the flight waits for nothing, its watcher was last told %v", told)
		}
		follower, _ := elsewhere.Join("follower")
		follower.SetRemote(told)
		last := waits(t.Context(), &elsewhere, all[1], follower)
		elsewhere.Finish(follower, "", nil)
		if err := <-last; err != nil {
			t.Errorf("a wait that closes no cycle: %v", err)
		}
	})
}
