package cache

// This file holds Group, one group's account in a cache. What a group loads and for how long is not known here.

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Group names the entries of one group and keeps their account, which may be read at any time. The cache writes it; its zero value is of no use.
type Group struct {
	seed maphash.Seed // of its own, so that the same key has unrelated hashes in two groups
	salt uint64       // of its name, the same in every process
	end  func(*Entry) int64

	_ [40]byte // stores write the account, hits read the seed: not on one cache line

	bytes, entries              atomic.Int64
	evictedLive, evictedExpired atomic.Uint64
}

// NewGroup returns a group without entries. Its name decides, together with a key, about the key's stripe, see Floor. end says of an entry until when, in clock
// nanoseconds, it is of use to anybody: evicting it later counts as the end of an expired entry, not of a live one, and having been read does not spare it.
// A nil end means Fresh. Drop the group with RemoveGroup.
func (c *Cache) NewGroup(name string, end func(*Entry) int64) *Group {
	if end == nil {
		end = func(e *Entry) int64 { return e.Fresh }
	}
	return &Group{seed: maphash.MakeSeed(), salt: xxhash.Sum64String(name), end: end}
}

// stripe is the place of key among the floors.
func (g *Group) stripe(key string) uint64 {
	return (xxhash.Sum64String(key) ^ g.salt) * 0x9e3779b97f4a7c15 >> (64 - stripeBits)
}

func (g *Group) hash(key string) uint64 { return maphash.String(g.seed, key) }

// Bytes is what the group's entries cost, as Size counts them.
func (g *Group) Bytes() int64 { return g.bytes.Load() }

// Entries is how many the group has in the cache.
func (g *Group) Entries() int64 { return g.entries.Load() }

// EvictedLive counts the entries that had to leave for others while they were still of use.
func (g *Group) EvictedLive() uint64 { return g.evictedLive.Load() }

// EvictedExpired counts the entries that left for others when their time was over.
func (g *Group) EvictedExpired() uint64 { return g.evictedExpired.Load() }
