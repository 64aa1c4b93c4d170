package cache

// This file holds the tests of accounts, groups and single operations.

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// Contract: R1
func TestHitAllocatesNothing(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	c.put(entry(g, "key", 1, 100))
	if n := testing.AllocsPerRun(1000, func() {
		if e := c.get(g, "key"); e == nil || e.Fresh < c.Clock().Now() {
			t.Error("not there")
		}
	}); n != 0 {
		t.Errorf("a hit allocates %v times", n)
	}
}

// Contract: R16
func TestOverwritingAKeyCostsOneEntry(t *testing.T) {
	c := New(2 * minShare)
	g := c.NewGroup(anyName(), nil)
	var last *Entry
	for i := range 10_000 {
		last = entry(g, "key", uint64(i+1), i%1000)
		last.Fresh = int64(i)
		if !c.put(last) {
			t.Fatalf("overwrite %d was refused", i)
		}
	}
	if c.Bytes() != Size(last) || g.Bytes() != Size(last) || c.Len() != 1 || g.Entries() != 1 {
		t.Errorf("%d bytes in %d entries, want %d in 1", c.Bytes(), c.Len(), Size(last))
	}
	if e := c.get(g, "key"); e != last || e.Fresh != 9_999 {
		t.Error("the stored entry is not the last one, with its own expiry")
	}
	recount(t, c, g)
}

// Contract: R16, O4
func TestAccountsEqualARecountAfterRandomOperations(t *testing.T) {
	c := New(100_000)
	groups := []*Group{c.NewGroup(anyName(), nil), c.NewGroup(anyName(), nil), c.NewGroup(anyName(), nil)}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 20_000 {
		operate(c, groups, random, uint64(i+1))
		if c.Bytes() > c.MaxBytes() {
			t.Fatalf("after %d operations: %d bytes of %d", i, c.Bytes(), c.MaxBytes())
		}
		if i%1000 == 0 {
			recount(t, c, groups...)
		}
	}
	recount(t, c, groups...)
}

// Contract: R16, O4
func TestAccountsEqualARecountAfterConcurrentOperations(t *testing.T) {
	c := New(4 * minShare)
	c.Resize(400_000) // four shards with much to evict
	groups := []*Group{c.NewGroup(anyName(), nil), c.NewGroup(anyName(), nil), c.NewGroup(anyName(), nil)}
	var wg sync.WaitGroup
	for worker := range uint64(4) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(worker, 3))
			for i := range uint64(10_000) {
				operate(c, groups, random, 4*i+worker+1)
			}
		})
	}
	wg.Wait()
	recount(t, c, groups...)
}

func operate(c *Cache, groups []*Group, random *rand.Rand, number uint64) {
	g := groups[random.IntN(len(groups))]
	key := numbered("key", random.IntN(2000))
	switch random.IntN(20) {
	case 0:
		c.invalidate(g, key, number-min(number, uint64(random.IntN(100))))
	case 1:
		if e := c.peek(g, key); e != nil {
			c.Remove(e)
		}
	case 2, 3, 4, 5, 6:
		c.get(g, key)
	case 7:
		if random.IntN(500) == 0 {
			c.RemoveGroup(g)
		}
	default:
		e := entry(g, key, number, random.IntN(700))
		if random.IntN(3) == 0 {
			e.More, e.Twin = &More{Tags: []string{"one", "another"}}, 500
		}
		c.Store(c.Hash(g, key), e, 0)
	}
}

// Contract: R19
func TestSameKeyInTwoGroupsIsTwoEntries(t *testing.T) {
	c := New(2 * minShare)
	a, b := c.NewGroup(anyName(), nil), c.NewGroup(anyName(), nil)
	ea, eb := entry(a, "key", 1, 1), entry(b, "key", 1, 2)
	c.put(ea)
	c.put(eb)
	c.invalidate(a, "key", 0)
	if c.get(a, "key") != ea || c.get(b, "key") != eb {
		t.Error("two groups share an entry")
	}
	c.RemoveGroup(a)
	if c.get(a, "key") != nil || c.get(b, "key") != eb || a.Bytes() != 0 || b.Bytes() != Size(eb) {
		t.Error("removing one group touched the other, or left something")
	}
	recount(t, c, a, b)
}

func TestRangeSeesEachEntryOfItsGroupOnce(t *testing.T) {
	c := New(4 * minShare)
	g, other := c.NewGroup(anyName(), nil), c.NewGroup(anyName(), nil)
	for i := range 1000 {
		c.put(entry(g, numbered("key", i), 1, 10))
		c.put(entry(other, numbered("key", i), 1, 10))
	}
	seen := map[string]int{}
	c.Range(g, func(e *Entry) bool {
		seen[e.Key]++
		if e.Group != g || seen[e.Key] != 1 {
			t.Errorf("%q of the wrong group, or seen twice", e.Key)
		}
		return c.Remove(e) // may use the cache
	})
	if len(seen) != 1000 || g.Entries() != 0 || other.Entries() != 1000 {
		t.Errorf("saw %d entries, %d and %d are left", len(seen), g.Entries(), other.Entries())
	}
	n := 0
	c.Range(other, func(*Entry) bool { n++; return n < 10 })
	if n != 10 {
		t.Errorf("Range went on for %d entries after it was told to stop at 10", n)
	}
}

// Contract: R16
func TestReplacementStandsWhereTheOldOneStood(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	c.put(entry(g, "read", 1, 10))
	c.get(g, "read")
	c.put(entry(g, "unread", 1, 10))
	for i := uint64(2); i < 5; i++ {
		c.put(entry(g, "read", i, 10))
		c.put(entry(g, "unread", i, 10))
	}
	if c.peek(g, "read").visited.Load() != 1 || c.peek(g, "unread").visited.Load() != 0 {
		t.Error("the mark of a hit is lost, or given, with a replacement")
	}
	c.shards[0].move(c.peek(g, "unread"), protected)
	c.put(entry(g, "unread", 5, 10))
	if c.peek(g, "unread").place != protected || c.peek(g, "read").place != probation {
		t.Error("a replacement changed its queue")
	}
}

func TestEntryThatIsGoneKeepsNoNeighbourAlive(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	var entries []*Entry
	for i := range 3 {
		entries = append(entries, entry(g, numbered("key", i), 1, 10))
		c.put(entries[i])
	}
	c.Remove(entries[1])
	c.put(entries[0].Copy())
	for _, e := range entries[:2] {
		if e.older != nil || e.newer != nil || e.place != nowhere {
			t.Errorf("%q is gone and still has neighbours", e.Key)
		}
	}
	if !c.put(entries[1]) || c.Len() != 3 {
		t.Error("an entry that was removed cannot be stored again")
	}
	if !c.put(entries[1]) || c.Len() != 3 {
		t.Error("storing what is stored is not a success without effect")
	}
	recount(t, c, g)
}

func TestRemoveTakesOnlyTheEntryItWasGiven(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	old := entry(g, "key", 1, 10)
	c.put(old)
	renewed := old.Copy()
	c.put(renewed)
	if c.Remove(old) || c.peek(g, "key") != renewed {
		t.Error("removing a replaced entry removed its successor")
	}
	if !c.Remove(renewed) || c.Remove(renewed) || c.Len() != 0 {
		t.Error("an entry is not removed exactly once")
	}
}

func TestEachShardHasRoomForTheLargestValue(t *testing.T) {
	for _, tc := range []struct {
		maxBytes int64
		shards   int
	}{{1, 1}, {17 << 20, 1}, {34<<20 - 1, 1}, {34 << 20, 2}, {64 << 20, 2}, {1 << 30, 32}, {1 << 40, 64}} {
		c := New(tc.maxBytes)
		if len(c.shards) != tc.shards {
			t.Errorf("New(%d) has %d shards, want %d", tc.maxBytes, len(c.shards), tc.shards)
		}
		if s := c.shard(^uint64(0)); s != &c.shards[tc.shards-1] {
			t.Errorf("New(%d): the highest hash is not in the last shard", tc.maxBytes)
		}
	}
}
