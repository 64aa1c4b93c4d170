package cache

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// Contract: R1
func TestHitAllocatesNothing(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup()
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
	c := New(8 << 20)
	g := c.NewGroup()
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
	if e := c.get(g, "key"); e != last || e.Expires() != 9_999 {
		t.Error("the stored entry is not the last one, with its own expiry")
	}
	recount(t, c, g)
}

// Contract: R16, O4
func TestAccountsEqualARecountAfterRandomOperations(t *testing.T) {
	c := New(100_000)
	groups := []*Group{c.NewGroup(), c.NewGroup(), c.NewGroup()}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 50_000 {
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
	c := New(16 << 20)
	c.Resize(400_000) // four shards with much to evict
	groups := []*Group{c.NewGroup(), c.NewGroup(), c.NewGroup()}
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
			e.More, e.Twin = &More{Tags: []string{"one", "another"}, DropAfter: 1}, 500
		}
		c.Store(c.Hash(g, key), e, 0)
	}
}

// Contract: R17
func TestScanLeavesTheWorkingSet(t *testing.T) {
	c := New(4 << 20)
	g := c.NewGroup()
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
	g := c.NewGroup()
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
	g := c.NewGroup()
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
	g := c.NewGroup()
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
		g := c.NewGroup()
		if c.put(entry(g, "", 1, 0)) || c.get(g, "") != nil {
			t.Errorf("New(%d) stores", maxBytes)
		}
	}
}

// Contract: R19
func TestSameKeyInTwoGroupsIsTwoEntries(t *testing.T) {
	c := New(8 << 20)
	a, b := c.NewGroup(), c.NewGroup()
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

func TestResizeDropsWhatNoLongerFits(t *testing.T) {
	c := New(64 << 20)
	g := c.NewGroup()
	for i := range 10_000 {
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
		g := c.NewGroup()
		storeAndRead := func(prefix string, n int, more *More, fresh time.Duration) {
			for i := range n {
				e := entry(g, numbered(prefix, i), 1, 1000)
				e.Fresh, e.More = int64(fresh), more
				c.put(e)
				c.get(g, e.Key)
			}
		}
		storeAndRead("stale", 40, &More{Expires: int64(time.Second), DropAfter: hour}, time.Second)
		storeAndRead("expired", 40, nil, time.Second)
		time.Sleep(2 * time.Second)
		c.Clock().Tick()
		storeAndRead("new", 35, nil, time.Hour)
		if g.EvictedExpired() < 25 || g.EvictedLive() != 0 {
			t.Errorf("%d expired and %d live entries were evicted, want some of the 40 that nobody could use", g.EvictedExpired(), g.EvictedLive())
		}
	})
}

func TestExpiredEntryIsNotSparedForHavingBeenRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(100_000)
		g := c.NewGroup()
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

func TestRangeSeesEachEntryOfItsGroupOnce(t *testing.T) {
	c := New(64 << 20)
	g, other := c.NewGroup(), c.NewGroup()
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
	g := c.NewGroup()
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
	g := c.NewGroup()
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
	g := c.NewGroup()
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

func TestCopyHasEveryExportedFieldAndIsStoredNowhere(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup()
	e := &Entry{Key: "k", Group: g, Data: "d", Value: 1, Fresh: 2, Flags: 3, More: &More{Seen: 4}, Number: 5, Delta: 6, Twin: 7}
	c.put(e)
	was, is := reflect.ValueOf(e).Elem(), reflect.ValueOf(e.Copy()).Elem()
	for i := range was.NumField() {
		switch field := was.Type().Field(i); {
		case !field.IsExported():
			if !is.Field(i).IsZero() {
				t.Errorf("%s is copied", field.Name)
			}
		case was.Field(i).IsZero() || !was.Field(i).Equal(is.Field(i)):
			t.Errorf("%s is not copied, or not tested", field.Name)
		}
	}
}

func TestShardsHaveAtLeastFourMebibytes(t *testing.T) {
	for _, tc := range []struct {
		maxBytes int64
		shards   int
	}{{1, 1}, {4 << 20, 1}, {8<<20 - 1, 1}, {8 << 20, 2}, {64 << 20, 16}, {256 << 20, 64}, {1 << 40, 64}} {
		c := New(tc.maxBytes)
		if len(c.shards) != tc.shards {
			t.Errorf("New(%d) has %d shards, want %d", tc.maxBytes, len(c.shards), tc.shards)
		}
		if s := c.shard(^uint64(0)); s != &c.shards[tc.shards-1] {
			t.Errorf("New(%d): the highest hash is not in the last shard", tc.maxBytes)
		}
	}
}

func TestSizeCountsWhatAnEntryIsMadeOf(t *testing.T) {
	if strconv.IntSize == 64 && (unsafe.Sizeof(Entry{}) != nodeBytes || unsafe.Sizeof(More{}) != moreBytes || unsafe.Sizeof(bucket{}) != 64) {
		t.Errorf("Entry has %d bytes, More %d, bucket %d", unsafe.Sizeof(Entry{}), unsafe.Sizeof(More{}), unsafe.Sizeof(bucket{}))
	}
	for _, tc := range []struct {
		entry *Entry
		size  int64
	}{
		{&Entry{}, 128},
		{&Entry{Key: "k"}, 144},
		{&Entry{Key: "sixteen bytes...", Data: "seventeen bytes.."}, 128 + 16 + 32},
		{&Entry{Value: 1, Twin: 100}, 228},
		{&Entry{More: &More{}}, 192},
		{&Entry{More: &More{Tags: []string{"a", "b"}, Trace: "00"}}, 192 + 32 + 16 + 16 + 16},
	} {
		if got := Size(tc.entry); got != tc.size {
			t.Errorf("Size(%+v) = %d, want %d", tc.entry.Key, got, tc.size)
		}
	}
}

func TestOverheadOfAnEntryInTheHeap(t *testing.T) {
	const entries, key, value = 250_000, 13, 100
	before := heap()
	c := New(1 << 30)
	g := c.NewGroup()
	for i := range entries {
		c.put(entry(g, fmt.Sprintf("key:%09d", i), 1, value))
	}
	overhead := float64(heap()-before)/entries - key - value
	t.Logf("%.1f bytes an entry", overhead)
	if overhead > 162 {
		t.Errorf("an entry costs %.1f bytes besides key and value, want at most 162", overhead)
	}
	if counted := float64(c.Bytes())/entries - key - value; counted < overhead*0.95 {
		t.Errorf("an entry costs %.1f bytes besides key and value, but only %.1f are counted", overhead, counted)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

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

func BenchmarkGet(b *testing.B) {
	c := New(64 << 20)
	g := c.NewGroup()
	keys := make([]string, 16_384)
	for i, at := range rand.Perm(len(keys)) {
		keys[at] = fmt.Sprintf("benchmark:key:%07d", i)
	}
	for i := range keys {
		c.put(entry(g, fmt.Sprintf("benchmark:key:%07d", i), 1, 128))
	}
	clock := c.Clock()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(keys)); pb.Next(); i++ {
			key := keys[i%len(keys)]
			if e := c.Get(c.Hash(g, key), g, key); e == nil || e.Fresh < clock.Now() {
				b.Error("not there")
			}
		}
	})
}

func BenchmarkStoreIntoAFullCache(b *testing.B) {
	c := New(16 << 20)
	g := c.NewGroup()
	value := string(make([]byte, 128))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.put(&Entry{Key: numbered("key", i), Group: g, Data: value, Fresh: hour, Number: 1})
	}
}
