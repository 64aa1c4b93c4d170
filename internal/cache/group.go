package cache

// This file holds Group, one group's account in a cache. What a group loads and for how long is not known here.

import (
	"hash/maphash"
	"sync/atomic"
)

// Group names the entries of one group and keeps their account, which may be read at any time. The cache writes it; its zero value is of no use.
type Group struct {
	seed maphash.Seed // of its own, so that the same key has unrelated hashes in two groups

	_ [56]byte // stores write the account, hits read the seed: not on one cache line

	bytes, entries              atomic.Int64
	evictedLive, evictedExpired atomic.Uint64
}

// NewGroup returns a group without entries. Drop it with RemoveGroup.
func (c *Cache) NewGroup() *Group { return &Group{seed: maphash.MakeSeed()} }

func (g *Group) hash(key string) uint64 { return maphash.String(g.seed, key) }

// Bytes is what the group's entries cost, as Size counts them.
func (g *Group) Bytes() int64 { return g.bytes.Load() }

// Entries is how many the group has in the cache.
func (g *Group) Entries() int64 { return g.entries.Load() }

// EvictedLive counts the entries that had to leave for others while they were still of use.
func (g *Group) EvictedLive() uint64 { return g.evictedLive.Load() }

// EvictedExpired counts the entries that left for others when their time was over.
func (g *Group) EvictedExpired() uint64 { return g.evictedExpired.Load() }
