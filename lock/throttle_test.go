package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/onefill/onefill/lock"
)

// allowed counts how many events pass in a row.
func allowed(w *world, throttle *lock.Throttle) int {
	w.t.Helper()
	for n := 0; ; n++ {
		if err := throttle.Allow(w.t.Context()); err != nil {
			want(w.t, err, lock.ErrThrottled)
			return n
		}
	}
}

// Contract: K9
func TestTheBurstIsExactlyNAndTheRateHolds(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		throttle := c.Throttle("t", 10, time.Second)
		if n := allowed(w, throttle); n != 10 {
			w.t.Fatalf("%d at once", n)
		}
		time.Sleep(100 * time.Millisecond)
		if n := allowed(w, throttle); n != 1 {
			w.t.Fatalf("%d after a tenth of the period", n)
		}
		time.Sleep(550 * time.Millisecond)
		if n := allowed(w, c.Throttle("t", 10, time.Second)); n != 5 {
			w.t.Fatalf("%d after 550 ms, asked through another Throttle of the name", n)
		}
		time.Sleep(time.Hour)
		if n := allowed(w, throttle); n != 10 {
			w.t.Fatalf("%d at once after an hour", n)
		}
	})
}

// Contract: K9
func TestWaitersPassAtTheRateInAllProcessesTogether(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const clients, each = 3, 20
		passed := make(chan time.Time, clients*each)
		began := time.Now()
		for range clients {
			c, _, done := w.redisClient(lock.Config{})
			defer done()
			throttle := c.Throttle("t", 10, time.Second)
			for range each {
				go func() {
					if err := throttle.Wait(context.Background()); err != nil {
						w.t.Error(err)
					}
					passed <- time.Now()
				}()
			}
		}
		var last time.Time
		for range clients * each {
			last = <-passed
		}
		if took := last.Sub(began); took < 5*time.Second || took > 5100*time.Millisecond {
			w.t.Fatalf("60 events at 10 a second, of which 10 at once, took %v", took)
		}
	})
}

// Contract: K9
func TestALostBucketIsFullAndAClockSetBackFillsNothing(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		throttle := c.Throttle("t", 5, time.Minute)
		if n := allowed(w, throttle); n != 5 {
			w.t.Fatalf("%d at once", n)
		}
		w.server.SetTime(time.Now().Add(-time.Hour))
		if n := allowed(w, throttle); n != 0 {
			w.t.Fatalf("%d after the clock was set back", n)
		}
		w.server.SetTime(time.Now().Add(-time.Hour + 12*time.Second))
		if n := allowed(w, throttle); n != 1 {
			w.t.Fatalf("%d a fifth of the period after the clock was set back", n)
		}
		w.server.FlushAll()
		if n := allowed(w, throttle); n != 5 {
			w.t.Fatalf("%d after FLUSHALL", n)
		}
	})
}

// Contract: K9
func TestAWaitThatWouldOutlastItsDeadlineFailsAtOnce(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		throttle := c.Throttle("t", 1, time.Minute)
		want(w.t, throttle.Wait(w.t.Context()), nil)
		began := time.Now()
		err := throttle.Wait(within(w.t, 59*time.Second))
		want(w.t, err, lock.ErrThrottled)
		want(w.t, err, context.DeadlineExceeded)
		if took := time.Since(began); took != 0 {
			w.t.Fatalf("took %v", took)
		}
		want(w.t, throttle.Wait(within(w.t, 61*time.Second)), nil)
	})
}
