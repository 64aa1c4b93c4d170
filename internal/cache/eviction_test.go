package cache

// This file holds the tests of who has to leave when room is short.

import (
	"testing"
	"testing/synctest"
	"time"
)

// Contract: R17
func TestScanLeavesTheWorkingSet(t *testing.T) {
	c := New(4 << 20)
	g := c.NewGroup(anyName(), nil)
	const hot = 2000
	for i := range hot {
		c.put(entry(g, numbered("hot", i), 1, 1000)) // more than half of the cache
		c.get(g, numbered("hot", i))
	}
	lost := 0
	for i := range 10_000 {
		key := numbered("cold", i)
		if c.get(g, key) == nil {
			c.put(entry(g, key, 1, 1000))
		}
		if c.get(g, numbered("hot", i%hot)) == nil {
			lost++
		}
	}
	if lost != 0 {
		t.Errorf("a scan pushed out %d of %d hot entries", lost, hot)
	}
	if g.EvictedLive() == 0 {
		t.Error("nothing was evicted: the scan was no test")
	}
}

func TestEntryThatReturnsSoonIsProtected(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	for i := 0; g.EvictedLive() == 0; i++ {
		c.put(entry(g, numbered("key", i), 1, 1000))
	}
	c.put(entry(g, "key:0", 1, 1000)) // evicted just now
	if p := c.peek(g, "key:0").place; p != protected {
		t.Errorf("an entry that came back is in queue %d", p)
	}
	if p := c.peek(g, "key:900").place; p != probation {
		t.Errorf("a new entry is in queue %d", p)
	}
}

func TestProtectedEntryThatWasReadIsSpared(t *testing.T) {
	c := New(100_000)
	g := c.NewGroup(anyName(), nil)
	for i := 0; g.EvictedLive() == 0; i++ { // the first forty are read, and so protected when their turn comes
		c.put(entry(g, numbered("key", i), 1, 1000))
		if i < 40 {
			c.get(g, numbered("key", i))
		}
	}
	if p := c.peek(g, "key:0").place; p != protected {
		t.Fatalf("an entry that was read is in queue %d", p)
	}
	for i := range 80 { // more than there is room for comes and is read: some of the protected must go
		c.get(g, "key:0")
		c.put(entry(g, numbered("later", i), 1, 1000))
		c.get(g, numbered("later", i))
	}
	if c.peek(g, "key:0") == nil {
		t.Error("the one that is read all the time is gone")
	}
	if c.peek(g, "key:1") != nil {
		t.Error("nothing older had to go: this was no test")
	}
}

// Contract: R14, R16
func TestEntryLargerThanItsShareLeavesTheRest(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	for i := range 100 {
		c.put(entry(g, numbered("key", i), 1, 1000))
	}
	if c.put(entry(g, "key:7", 2, 1<<20)) {
		t.Error("an entry larger than the cache was stored")
	}
	if c.peek(g, "key:7") != nil {
		t.Error("the entry that it supersedes is still there")
	}
	if c.Len() != 99 {
		t.Errorf("%d entries are left of 99", c.Len())
	}
	fits := int(c.Share()) - nodeBytes - slotBytes - 16
	if !c.put(entry(g, "key:8", 2, fits)) || c.peek(g, "key:8") == nil {
		t.Error("an entry of exactly the share was refused")
	}
	recount(t, c, g)
}

// Contract: O4
func TestCacheOfNoBytesHoldsNothing(t *testing.T) {
	for _, maxBytes := range []int64{-1, 0, 1} {
		c := New(maxBytes)
		g := c.NewGroup(anyName(), nil)
		if c.put(entry(g, "", 1, 0)) || c.get(g, "") != nil {
			t.Errorf("New(%d) stores", maxBytes)
		}
	}
}

func TestResizeDropsWhatNoLongerFits(t *testing.T) {
	c := New(4 * minShare)
	g := c.NewGroup(anyName(), nil)
	for i := range 3000 {
		c.put(entry(g, numbered("key", i), 1, 1000))
	}
	c.Resize(1 << 20)
	if c.Bytes() > 1<<20 || c.Len() < 500 || c.MaxBytes() != 1<<20 {
		t.Errorf("%d bytes in %d entries after shrinking to 1 MiB", c.Bytes(), c.Len())
	}
	recount(t, c, g)
	c.Resize(0)
	if c.Bytes() != 0 || c.Len() != 0 {
		t.Errorf("%d bytes in %d entries after shrinking to nothing", c.Bytes(), c.Len())
	}
	recount(t, c, g)
}

func TestExpiredEntriesLeaveBeforeOthersAndAreCountedApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(100_000) // room for 87
		const stale = 1   // of use for an hour after its end
		g := c.NewGroup(anyName(), func(e *Entry) int64 { return e.Fresh + int64(e.Flags)*hour })
		storeAndRead := func(prefix string, n int, flags uint8, fresh time.Duration) {
			for i := range n {
				e := entry(g, numbered(prefix, i), 1, 1000)
				e.Fresh, e.Flags = int64(fresh), flags
				c.put(e)
				c.get(g, e.Key)
			}
		}
		storeAndRead("stale", 40, stale, time.Second)
		storeAndRead("expired", 40, 0, time.Second)
		time.Sleep(2 * time.Second)
		c.Clock().Tick()
		storeAndRead("new", 35, 0, time.Hour)
		if g.EvictedExpired() < 25 || g.EvictedLive() != 0 {
			t.Errorf("%d expired and %d live entries were evicted, want some of the 40 that nobody could use", g.EvictedExpired(), g.EvictedLive())
		}
	})
}

func TestExpiredEntryIsNotSparedForHavingBeenRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(100_000)
		g := c.NewGroup(anyName(), nil)
		store := func(key string, life time.Duration, read bool) {
			e := entry(g, key, 1, 1000)
			e.Fresh = int64(life)
			c.put(e)
			if read {
				c.get(g, key)
			}
		}
		for i := 0; g.EvictedLive() == 0; i++ { // until the first forty are protected
			store(numbered("key", i), time.Second, i < 40)
		}
		for i := range 40 {
			c.get(g, numbered("key", i))
		}
		time.Sleep(2 * time.Second)
		c.Clock().Tick()
		for i := range 80 {
			store(numbered("later", i), time.Hour, true)
		}
		if g.EvictedLive() != 1 {
			t.Errorf("%d live entries left while expired ones stayed", g.EvictedLive()-1)
		}
	})
}
