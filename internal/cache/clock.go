package cache

// This file holds the clock that entries' lives are measured by. Who ticks it is not known here.

import (
	"sync/atomic"
	"time"
)

// TickInterval is how often the owner of a Clock should call Tick: how far Now may lag behind.
const TickInterval = 10 * time.Millisecond

// Clock is a coarse clock: monotonic nanoseconds since it was made, read from memory in about 1 ns where time.Now takes 40. Its methods are safe for
// concurrent use. Times of two clocks cannot be compared.
type Clock struct {
	start time.Time
	now   atomic.Int64
	_     [32]byte // a cache line of its own: every hit reads it
}

// NewClock returns a clock that stands at 0 until Tick is called.
func NewClock() *Clock { return &Clock{start: time.Now()} }

// Now is the time of the last Tick.
func (c *Clock) Now() int64 { return c.now.Load() }

// Exact is the time now, read from the operating system, in about 25 ns.
func (c *Clock) Exact() int64 { return int64(time.Since(c.start)) }

// Tick brings Now up to date. Now never runs backwards, also if two callers tick.
func (c *Clock) Tick() {
	exact := c.Exact()
	for {
		now := c.now.Load()
		if exact <= now || c.now.CompareAndSwap(now, exact) {
			return
		}
	}
}
