package cache

// This file holds the shard: where changes to a part of the cache happen, under its lock, and who has to leave when room is short.

import (
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	probationPart = 10  // a tenth of the shard, as in the paper
	ghostPart     = 4   // a ghost for every fourth entry
	ghostBytes    = 112 // what one costs in golang-lru, measured: its element and its place in a map
)

// shard is one part of a cache. The lock guards everything but the pointer to the table, which only its holder changes and everybody reads.
type shard struct {
	table atomic.Pointer[table]
	_     [56]byte // stores write what follows, hits read the table: not on one cache line

	mu        sync.Mutex
	share     int64 // bytes that entries and ghosts may take
	probation queue
	protected queue

	// ghosts holds the hashes of entries that lately left probation unread, in the order in which they left. One that comes back so soon was
	// judged too early. Golang-lru serves here, off the path of a hit; for the entries themselves it costs a lock and a move at each hit.
	ghosts *simplelru.LRU[uint64, struct{}]

	_ [64]byte
}

func (s *shard) open() {
	s.table.Store(newTable(fewestBuckets))
	s.ghosts, _ = simplelru.NewLRU[uint64, struct{}](1<<30, nil) // the bound is makeRoom's; the error is for sizes below 1
}

func (s *shard) bytes() int64 { return s.probation.bytes + s.protected.bytes }

func (s *shard) count() int { return s.probation.count + s.protected.count }

// store puts e in the cache, in place of an entry of the same key if there is one, and reports whether it did.
func (s *shard) store(hash uint64, e *Entry, now int64) bool {
	old := s.table.Load().find(hash, e.Group, e.Key)
	if old != nil && old.Number > e.Number {
		return false
	}
	size := Size(e)
	if size > s.share {
		if old != nil {
			s.remove(hash, old)
		}
		return false
	}
	if old != nil {
		e.visited.Store(old.visited.Load())
		to := old.place
		s.unlink(old) // it stays in the table until e takes its slot, so that no reader finds nothing
		s.makeRoom(size, now)
		s.table.Load().replace(hash, old, e)
		s.link(e, to)
		return true
	}
	to := probation
	if s.ghosts.Remove(hash) {
		to = protected
	}
	s.makeRoom(size, now)
	if t := s.table.Load(); s.count() >= t.capacity() {
		s.table.Store(t.rebuilt(2 * len(t.buckets)))
	}
	s.table.Load().insert(hash, e)
	s.link(e, to)
	return true
}

// remove takes a stored entry out. A table that has emptied gives its memory back.
func (s *shard) remove(hash uint64, e *Entry) {
	s.unlink(e)
	t := s.table.Load()
	t.remove(hash, e)
	if len(t.buckets) > fewestBuckets && s.count() < t.capacity()/8 {
		s.table.Store(t.rebuilt(len(t.buckets) / 2))
	}
}

// makeRoom lets entries leave until need more bytes fit. It ends: each turn takes a ghost or an entry away, or moves one from probation to protected.
func (s *shard) makeRoom(need, now int64) {
	for s.bytes()+ghostBytes*int64(s.ghosts.Len())+need > s.share {
		switch {
		case s.ghosts.Len() > s.count()/ghostPart:
			s.ghosts.RemoveOldest()
		case s.count() == 0:
			return
		case s.protected.count == 0, s.probation.count > 0 && s.probation.bytes+need > s.share/probationPart:
			s.judge(s.probation.oldest, now)
		default:
			s.evict(s.leastUsed(now), now)
		}
	}
}

// expel removes the entry under key if its Number is at most number, and returns the Number of the one that remains.
func (s *shard) expel(hash uint64, g *Group, key string, number uint64) (highest uint64) {
	e := s.table.Load().find(hash, g, key)
	switch {
	case e == nil:
		return 0
	case e.Number > number:
		return e.Number
	}
	s.remove(hash, e)
	return 0
}

// judge ends the probation of e: what was read in time is protected from now on, the rest leaves a ghost.
func (s *shard) judge(e *Entry, now int64) {
	if e.visited.Load() != 0 && now <= e.Group.end(e) {
		s.move(e, protected)
		return
	}
	hash := s.evict(e, now)
	if now <= e.Group.end(e) {
		s.ghosts.Add(hash, struct{}{})
	}
}

// leastUsed returns the oldest protected entry that was not read since it joined or was last spared. Entries that were read join anew; if all were, or are
// read again faster than this goes, it is the oldest.
func (s *shard) leastUsed(now int64) *Entry {
	for range s.protected.count {
		e := s.protected.oldest
		if e.visited.Load() == 0 || now > e.Group.end(e) {
			break
		}
		s.move(e, protected)
	}
	return s.protected.oldest
}

// evict removes e to make room for others and returns its hash.
func (s *shard) evict(e *Entry, now int64) (hash uint64) {
	hash = e.Group.hash(e.Key)
	if now > e.Group.end(e) {
		e.Group.evictedExpired.Add(1)
	} else {
		e.Group.evictedLive.Add(1)
	}
	s.remove(hash, e)
	return hash
}

func (s *shard) queue(p place) *queue {
	if p == protected {
		return &s.protected
	}
	return &s.probation
}

// move lets e join a queue, anew and as one that was not read.
func (s *shard) move(e *Entry, to place) {
	s.queue(e.place).leave(e)
	e.visited.Store(0)
	e.place = to
	s.queue(to).join(e)
}

// link and unlink keep queues and accounts together.
func (s *shard) link(e *Entry, to place) {
	e.place = to
	s.queue(to).join(e)
	e.Group.bytes.Add(Size(e))
	e.Group.entries.Add(1)
}

func (s *shard) unlink(e *Entry) {
	s.queue(e.place).leave(e)
	e.place = nowhere
	e.Group.bytes.Add(-Size(e))
	e.Group.entries.Add(-1)
}

// entriesOf returns the stored entries of g.
func (s *shard) entriesOf(g *Group) (entries []*Entry) {
	for _, q := range []*queue{&s.probation, &s.protected} {
		for e := q.oldest; e != nil; e = e.newer {
			if e.Group == g {
				entries = append(entries, e)
			}
		}
	}
	return entries
}
