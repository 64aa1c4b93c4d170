package l2

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Contract: L8
func TestBreakerLetsOneProbeThroughForTheWholeHerd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b breaker
		admitted := func() (n, probes int) {
			for range 100 {
				if probe, err := b.admit(time.Now()); err == nil {
					n++
					if probe {
						probes++
					}
				} else if !errors.Is(err, errDown) {
					t.Fatal(err)
				}
			}
			return n, probes
		}
		if n, probes := admitted(); n != 100 || probes != 0 || b.state() != "up" {
			t.Fatalf("closed: %d admitted, %d as probes, %s", n, probes, b.state())
		}
		if !b.settle(false, time.Now(), failed) || b.state() != "down" {
			t.Fatalf("after a failure: %s", b.state())
		}
		if n, _ := admitted(); n != 0 {
			t.Fatalf("right after a failure %d are admitted", n)
		}
		for _, pause := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
			time.Sleep(pause*time.Millisecond - time.Microsecond)
			if n, _ := admitted(); n != 0 {
				t.Fatalf("%d admitted before %v have passed", n, pause*time.Millisecond)
			}
			time.Sleep(time.Microsecond)
			if n, probes := admitted(); n != 1 || probes != 1 || b.state() != "probing" {
				t.Fatalf("after %v: %d admitted, %d as probes, %s", pause*time.Millisecond, n, probes, b.state())
			}
			b.settle(true, time.Now(), failed)
		}
		time.Sleep(time.Second)
		admitted()
		if !b.settle(true, time.Now(), answered) || b.state() != "up" {
			t.Fatalf("after a probe that was answered: %s", b.state())
		}
		if n, _ := admitted(); n != 100 {
			t.Fatalf("closed again: %d admitted", n)
		}
	})
}

// Contract: L8
func TestProbeWhoseCallerLeavesSaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b breaker
		b.settle(false, time.Now(), failed)
		time.Sleep(probeMin)
		if probe, err := b.admit(time.Now()); !probe || err != nil {
			t.Fatal(probe, err)
		}
		b.settle(true, time.Now(), silent)
		if b.state() != "down" {
			t.Fatalf("the tier is %s", b.state())
		}
		if probe, err := b.admit(time.Now()); !probe || err != nil {
			t.Fatal("the next caller may not probe", probe, err)
		}
	})
}

// Contract: L8
func TestFailureFromBeforeTheLastSuccessDoesNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b breaker
		began := time.Now()
		time.Sleep(time.Millisecond)
		b.settle(false, time.Now(), answered)
		if b.settle(false, began, failed) || b.state() != "up" {
			t.Fatalf("the tier is %s", b.state())
		}
	})
}
