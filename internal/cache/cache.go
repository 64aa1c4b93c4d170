// Package cache is the memory of a onefill process: entries of all its groups, bounded in bytes, read without a lock.
//
// A Cache is cut into shards. Each holds a table (table.go) that readers search without locking, two queues (queue.go) that give the order of eviction, and
// one lock for whoever changes either (shard.go). What an entry is, and what it costs, stands in entry.go; a group's account in group.go; time in clock.go.
// What a value means, when it is fresh and who may fill it are not known here.
//
// The order of eviction follows Yang et al. 2023, "FIFO queues are all you need for cache eviction": a hit sets one mark, and only when it is not set
// already, so that two cores that read the same keys never write to each other's cache lines. Moving an entry to the front of a list at each hit, as an LRU
// does, was measured at two to three times the cost on two cores.
package cache

import "sync/atomic"

const (
	maxShards  = 64       // more would not be noticed: stores are rare beside reads, and reads do not lock
	minShare   = 17 << 20 // so that a value of the default MaxValueBytes, 16 MiB, fits
	stripeBits = 14       // 16,384 floors in 128 KiB; see Floor
)

// Cache is a bounded memory shared by groups that share nothing else: the same key in two groups is two entries. Its methods are safe for concurrent use.
type Cache struct {
	clock  *Clock
	shards []shard
	shift  uint // a hash's top bits, from here up, name its shard
	floors *[1 << stripeBits]atomic.Uint64
	max    atomic.Int64
}

// New returns a cache that holds at most maxBytes of entries, as Size counts them, plus 128 KiB of its own. Zero or less holds nothing. The number of
// shards follows from maxBytes: a power of two, at most 64, such that each has at least minShare bytes.
func New(maxBytes int64) *Cache {
	n, bits := 1, uint(0)
	for n < maxShards && maxBytes/int64(2*n) >= minShare {
		n, bits = 2*n, bits+1
	}
	c := &Cache{
		clock:  NewClock(),
		shards: make([]shard, n),
		shift:  64 - bits,
		floors: new([1 << stripeBits]atomic.Uint64),
	}
	for i := range c.shards {
		c.shards[i].open()
	}
	c.Resize(maxBytes)
	return c
}

// Clock is the clock that the cache's times are read from. Whoever made the cache ticks it.
func (c *Cache) Clock() *Clock { return c.clock }

// Hash is what the other methods want as a key's hash. It differs from process to process, and from group to group for the same key.
func (c *Cache) Hash(g *Group, key string) uint64 { return g.hash(key) }

// Get returns the entry stored under key, whatever its age, or nil, and marks it as used. It takes no lock and allocates nothing.
func (c *Cache) Get(hash uint64, g *Group, key string) *Entry {
	e := c.shard(hash).table.Load().find(hash, g, key)
	if e != nil && e.visited.Load() == 0 {
		e.visited.Store(1)
	}
	return e
}

// Peek is Get without the mark: it does not prolong an entry's stay.
func (c *Cache) Peek(hash uint64, g *Group, key string) *Entry {
	return c.shard(hash).table.Load().find(hash, g, key)
}

// Store puts e in the place of whatever is stored under its key, and reports whether it did: readers see the old entry or e, never a gap between. It refuses
//   - an entry whose Number is not above the Floor of its key, unless vouched reaches it;
//   - an entry whose Number is below that of the stored one (an equal number replaces);
//   - an entry larger than Share, which could not stay. What was stored under its key goes all the same, since e supersedes it.
//
// vouched is the number of an invalidation, of the key's stripe, up to which the caller knows that none concerns e; zero if it knows nothing. e must not be changed afterwards.
func (c *Cache) Store(hash uint64, e *Entry, vouched uint64) bool {
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if floor := c.Floor(e.Group, e.Key); e.Number <= floor && vouched < floor {
		return false
	}
	return s.store(hash, e, c.clock.Now())
}

// Floor returns the highest number of an invalidation that concerned a key of this key's stripe, 0 for none. It only rises. A key has the same stripe in every
// process, so that the floors of two processes can be compared: they are equal where both have heard of the same invalidations. Keys share 16,384 stripes, which errs on the safe side: an invalidation may keep the value of another key, whose load was under way meanwhile, out of the cache. With 1,000
// invalidations a second and loads of 450 ms that is one load in forty.
func (c *Cache) Floor(g *Group, key string) uint64 { return c.floors[g.stripe(key)].Load() }

// Invalidate removes the entry under key if its Number is at most number, keeps everything up to number out from now on, and stores next, where it is not nil,
// in its place, all in one step for whoever stores. It returns the Number of the entry that remained, 0 if there was none; then next was stored only if its own
// Number is no lower.
//
// The entry goes before the floor rises. A reader takes no lock: it may read the floor and then Get the entry, and what it must never have in hand is the
// new floor together with the old entry, which it would take for one that outlived the invalidation.
func (c *Cache) Invalidate(hash uint64, g *Group, key string, number uint64, next *Entry) (highest uint64) {
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	highest = s.expel(hash, g, key, number)
	floor := &c.floors[g.stripe(key)] // keys of other shards share it
	for now := floor.Load(); now < number && !floor.CompareAndSwap(now, number); now = floor.Load() {
	}
	if next != nil {
		s.store(hash, next, c.clock.Now())
	}
	return highest
}

// Expel removes the entry under key if its Number is at most number. It returns the Number of the entry that remains, 0 if there is none.
func (c *Cache) Expel(hash uint64, g *Group, key string, number uint64) (highest uint64) {
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.expel(hash, g, key, number)
}

// Remove takes e out of the cache if it is still the one stored under its key, and reports whether it was.
func (c *Cache) Remove(e *Entry) bool {
	hash := e.Group.hash(e.Key)
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.table.Load().find(hash, e.Group, e.Key) != e {
		return false
	}
	s.remove(hash, e)
	return true
}

// RemoveGroup takes all entries of g out of the cache. What is stored for g while it runs may stay.
func (c *Cache) RemoveGroup(g *Group) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for _, e := range s.entriesOf(g) {
			s.remove(g.hash(e.Key), e)
		}
		s.mu.Unlock()
	}
}

// Range calls fn for the entries of g, in no order, until fn returns false. It holds no lock while fn runs, so fn may use the cache; it sees each entry that
// was stored before and is not replaced or removed meanwhile.
func (c *Cache) Range(g *Group, fn func(*Entry) bool) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries := s.entriesOf(g)
		s.mu.Unlock()
		for _, e := range entries {
			if !fn(e) {
				return
			}
		}
	}
}

// Bytes is what all entries cost together, as Size counts them.
func (c *Cache) Bytes() (bytes int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		bytes += s.bytes()
		s.mu.Unlock()
	}
	return bytes
}

// Len is the number of entries.
func (c *Cache) Len() (entries int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		entries += s.count()
		s.mu.Unlock()
	}
	return entries
}

// MaxBytes is the bound on Bytes.
func (c *Cache) MaxBytes() int64 { return c.max.Load() }

// Share is the Size of the largest entry that Store accepts: the part of MaxBytes that one shard has.
func (c *Cache) Share() int64 { return c.MaxBytes() / int64(len(c.shards)) }

// Resize changes MaxBytes and drops what no longer fits. Zero or less drops everything. The number of shards stays, and with it the part of each.
func (c *Cache) Resize(maxBytes int64) {
	c.max.Store(max(maxBytes, 0))
	share, now := c.Share(), c.clock.Now()
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.share = share
		s.makeRoom(0, now)
		s.mu.Unlock()
	}
}

func (c *Cache) shard(hash uint64) *shard { return &c.shards[hash>>c.shift] }
