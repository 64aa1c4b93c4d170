package cache

// This file holds the tests of what readers see while others write, and of the order of invalidations.

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
)

func TestReadersFindEveryKeyWhileTheTableGrowsAndShrinks(t *testing.T) {
	c := New(8 * minShare)
	g := c.NewGroup(anyName(), nil)
	const lasting, passing = 500, 10_000
	for i := range lasting {
		c.put(entry(g, numbered("lasting", i), 1, 10))
	}
	var done atomic.Bool
	var readers, writer sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				for i := range lasting {
					if key := numbered("lasting", i); c.get(g, key) == nil {
						t.Errorf("%q was not found", key)
						return
					}
				}
				if key := numbered("never", rand.IntN(1000)); c.get(g, key) != nil {
					t.Errorf("%q was found", key)
				}
			}
		})
	}
	writer.Go(func() {
		for range 2 {
			for i := range passing {
				c.put(entry(g, numbered("passing", i), 1, 10))
			}
			for i := range lasting {
				c.put(entry(g, numbered("lasting", i), 1, 10)) // no gap where one replaces another
			}
			for i := range passing {
				c.Remove(c.peek(g, numbered("passing", i)))
			}
		}
	})
	writer.Wait()
	done.Store(true)
	readers.Wait()
	recount(t, c, g)
	for i := range c.shards {
		if n := len(c.shards[i].table.Load().buckets); n > 256 {
			t.Errorf("a table with %d entries still has %d buckets", c.shards[i].count(), n)
		}
	}
}

func TestReplacingLeavesNoGapForReaders(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	c.put(entry(g, "key", 1, 10))
	var done atomic.Bool
	var reader sync.WaitGroup
	reader.Go(func() {
		for last := uint64(0); !done.Load(); {
			e := c.get(g, "key")
			if e == nil || e.Number < last {
				t.Error("a reader found nothing, or something older than before")
				return
			}
			last = e.Number
		}
	})
	for i := range uint64(50_000) {
		c.put(entry(g, "key", i+2, 10))
	}
	done.Store(true)
	reader.Wait()
}

func TestReplacementTakesTheSlotItself(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	for i := range 40 {
		c.put(entry(g, numbered("key", i), 1, 10))
	}
	for i := 0; i < 40; i += 2 { // leaves free slots that a removal and an insertion would take instead
		c.Remove(c.peek(g, numbered("key", i)))
	}
	table := c.shards[0].table.Load()
	for i := 1; i < 40; i += 2 {
		old, hash := c.peek(g, numbered("key", i)), c.Hash(g, numbered("key", i))
		bucket, slot := table.locate(hash, old)
		e := old.Copy()
		c.put(e)
		if table.buckets[bucket].slots[slot].Load() != e {
			t.Errorf("%q moved: for a moment a reader could find nothing", e.Key)
		}
	}
}

func TestDeletionsLeaveNothingThatLookUpsStepOver(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	for i := range 50_000 { // a window of 300 keys moves on and on: no growth, nothing but insertions and removals
		c.put(entry(g, numbered("key", i), 1, 10))
		if i >= 300 {
			c.Remove(c.peek(g, numbered("key", i-300)))
		}
	}
	recount(t, c, g)
	c.RemoveGroup(g)
	table := c.shards[0].table.Load()
	for i := range table.buckets {
		if head := table.buckets[i].head.Load(); head != 0 {
			t.Errorf("bucket %d of an empty table has head %x", i, head)
		}
	}
}

func TestFullBucketIsPassedAndCrowdedHashesAreFound(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	table := newTable(fewestBuckets)
	var entries []*Entry
	const hash = 5 // all in one bucket, with one tag
	for i := range 3 * slotsPerBucket {
		e := entry(g, numbered("key", i), 1, 0)
		table.insert(hash, e)
		entries = append(entries, e)
	}
	for _, at := range rand.Perm(len(entries)) {
		e := entries[at]
		if table.find(hash, g, e.Key) != e || table.find(hash, c.NewGroup(anyName(), nil), e.Key) != nil {
			t.Errorf("%q was not found, or in the wrong group", e.Key)
		}
		table.remove(hash, e)
		if table.find(hash, g, e.Key) != nil {
			t.Errorf("%q was found after it was removed", e.Key)
		}
	}
	for i := range table.buckets {
		if head := table.buckets[i].head.Load(); head != 0 {
			t.Errorf("bucket %d of an empty table has head %x", i, head)
		}
	}
}

// Contract: I1, I2
func TestNewFloorIsNeverSeenWithTheOldEntry(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	hash := c.Hash(g, "key")
	var done atomic.Bool
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for !done.Load() {
				floor := c.Floor(g, "key")
				if e := c.Get(hash, g, "key"); e != nil && e.Number <= floor {
					t.Errorf("floor %d together with entry %d", floor, e.Number)
					return
				}
			}
		})
	}
	for i := uint64(1); i < 100_000; i += 2 {
		c.Store(hash, &Entry{Key: "key", Group: g, Number: i}, 0)
		c.Invalidate(hash, g, "key", i+1, nil)
	}
	done.Store(true)
	readers.Wait()
}

// Contract: I2
func TestStoreRefusesWhatAnInvalidationOvertook(t *testing.T) {
	for _, tc := range []struct {
		what                           string
		stored, floor, number, vouched uint64
		want                           bool
	}{
		{"nothing happened", 0, 0, 1, 0, true},
		{"not numbered, nothing happened", 0, 0, 0, 0, true},
		{"below the floor", 0, 10, 9, 0, false},
		{"at the floor", 0, 10, 10, 0, false},
		{"above the floor", 0, 10, 11, 0, true},
		{"vouched for beyond the floor", 0, 10, 9, 11, true},
		{"vouched for up to the floor", 0, 10, 9, 10, true},
		{"vouched for below the floor", 0, 10, 8, 9, false},
		{"older than the stored one", 12, 10, 11, 0, false},
		{"older than the stored one, vouched for", 12, 10, 11, 20, false},
		{"as old as the stored one", 12, 10, 12, 0, true},
		{"newer than the stored one", 12, 10, 13, 0, true},
	} {
		c := New(1 << 20)
		g := c.NewGroup(anyName(), nil)
		if tc.stored > 0 {
			c.put(entry(g, "key", tc.stored, 1))
		}
		c.invalidate(g, "key", tc.floor)
		before := c.peek(g, "key")
		e := entry(g, "key", tc.number, 1)
		if got := c.Store(c.Hash(g, "key"), e, tc.vouched); got != tc.want {
			t.Errorf("%s: Store returned %v", tc.what, got)
		}
		want := e
		if !tc.want {
			want = before
		}
		if c.peek(g, "key") != want {
			t.Errorf("%s: the wrong entry is stored", tc.what)
		}
		recount(t, c, g)
	}
}

// Contract: I1
func TestInvalidateReturnsTheNumberThatRemains(t *testing.T) {
	c := New(1 << 20)
	g := c.NewGroup(anyName(), nil)
	hash := c.Hash(g, "key")
	c.put(entry(g, "key", 10, 1))
	for _, tc := range []struct{ number, highest, floor uint64 }{{9, 10, 9}, {8, 10, 9}, {10, 0, 10}, {11, 0, 11}, {5, 0, 11}} {
		if got := c.Invalidate(hash, g, "key", tc.number, nil); got != tc.highest {
			t.Errorf("Invalidate(%d) = %d, want %d", tc.number, got, tc.highest)
		}
		if got := c.Floor(g, "key"); got != tc.floor {
			t.Errorf("after Invalidate(%d) the floor is %d, want %d", tc.number, got, tc.floor)
		}
	}
	if c.Len() != 0 || c.Bytes() != 0 {
		t.Error("an invalidated entry is still there")
	}
	c.Resize(0)
	c.RemoveGroup(g)
	if c.Floor(g, "key") != 11 {
		t.Error("a floor was forgotten")
	}
}
