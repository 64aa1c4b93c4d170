package cache

// This file holds the tests of the clock.

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestClockStandsBetweenTicks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClock()
		time.Sleep(TickInterval)
		if c.Now() != 0 || c.Exact() != int64(TickInterval) {
			t.Errorf("before the tick: %d and %d", c.Now(), c.Exact())
		}
		c.Tick()
		if c.Now() != int64(TickInterval) {
			t.Errorf("after the tick: %d", c.Now())
		}
	})
}
