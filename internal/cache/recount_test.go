package cache

// This file holds what the tests share: making entries, and counting again what the cache says it counted.

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
)

const hour = int64(time.Hour)

func entry(g *Group, key string, number uint64, bytes int) *Entry {
	return &Entry{Key: key, Group: g, Data: string(make([]byte, bytes)), Fresh: hour, Number: number}
}

func (c *Cache) put(e *Entry) bool { return c.Store(c.Hash(e.Group, e.Key), e, 0) }

func (c *Cache) get(g *Group, key string) *Entry { return c.Get(c.Hash(g, key), g, key) }

func (c *Cache) peek(g *Group, key string) *Entry { return c.Peek(c.Hash(g, key), g, key) }

func (c *Cache) invalidate(g *Group, key string, number uint64) uint64 {
	return c.Invalidate(c.Hash(g, key), g, key, number, nil)
}

// recount walks tables and queues and compares them with each other and with every account.
func recount(t *testing.T, c *Cache, groups ...*Group) {
	t.Helper()
	var bytes int64
	perGroup := map[*Group]int64{}
	entries := map[*Group]int64{}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		queued := map[*Entry]bool{}
		for p, q := range map[place]*queue{probation: &s.probation, protected: &s.protected} {
			var inQueue int64
			n := 0
			for e := q.oldest; e != nil; e = e.newer {
				if e.place != p || (e.newer == nil) != (e == q.newest) {
					t.Errorf("shard %d: %q is linked wrongly", i, e.Key)
				}
				queued[e] = true
				inQueue += Size(e)
				perGroup[e.Group] += Size(e)
				entries[e.Group]++
				n++
			}
			if inQueue != q.bytes || n != q.count {
				t.Errorf("shard %d, queue %d: counted %d bytes in %d entries, the queue says %d in %d", i, p, inQueue, n, q.bytes, q.count)
			}
			bytes += inQueue
		}
		recountTable(t, s, queued)
		if used := s.bytes() + ghostBytes*int64(s.ghosts.Len()); used > s.share {
			t.Errorf("shard %d: %d bytes in use, its share is %d", i, used, s.share)
		}
		s.mu.Unlock()
	}
	if c.Bytes() != bytes {
		t.Errorf("Bytes() = %d, counted %d", c.Bytes(), bytes)
	}
	for _, g := range groups {
		if g.Bytes() != perGroup[g] || g.Entries() != entries[g] {
			t.Errorf("a group has %d bytes in %d entries, its account says %d in %d", perGroup[g], entries[g], g.Bytes(), g.Entries())
		}
	}
}

// recountTable checks that the table holds exactly the queued entries, and that the counts of entries that passed a bucket are exact, so that deletions
// leave nothing behind that look-ups would have to step over.
func recountTable(t *testing.T, s *shard, queued map[*Entry]bool) {
	t.Helper()
	table := s.table.Load()
	passed := make([]uint64, len(table.buckets))
	n := 0
	for i := range table.buckets {
		b := &table.buckets[i]
		for slot := range slotsPerBucket {
			e := b.slots[slot].Load()
			if (e != nil) != (b.head.Load()>>(8*slot)&0xff != 0) {
				t.Errorf("bucket %d, slot %d: the tag and the slot differ", i, slot)
			}
			if e == nil {
				continue
			}
			n++
			if !queued[e] {
				t.Errorf("%q is in the table and in no queue", e.Key)
			}
			for j := table.home(e.Group.hash(e.Key)); j != uint(i); j = table.after(j) {
				passed[j]++
			}
		}
	}
	if n != len(queued) {
		t.Errorf("the table holds %d entries, the queues %d", n, len(queued))
	}
	for i, want := range passed {
		if got := table.buckets[i].head.Load() >> passedShift; got != want {
			t.Errorf("bucket %d: %d entries passed it, its head says %d", i, want, got)
		}
	}
}

func numbered(prefix string, i int) string { return fmt.Sprintf("%s:%d", prefix, i) }

var names atomic.Int64

// anyName is a name that no other group of the tests has.
func anyName() string { return strconv.FormatInt(names.Add(1), 10) }
