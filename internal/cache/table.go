package cache

// This file holds the table, which finds an entry by group and key without a lock. When tables grow and shrink is decided in shard.go.

import (
	"math/bits"
	"sync/atomic"
)

const (
	slotsPerBucket = 7
	fewestBuckets  = 8

	onesOfTags  = 0x0001010101010101 // the lowest bit of each of the seven tag bytes
	highsOfTags = 0x0080808080808080 // the highest
	passedShift = 56
	passedFull  = 255
)

// bucket is one cache line: seven slots, and a head with a byte for each. A tag byte is eight bits of the hash of the entry in that slot, 0 for an empty
// slot, so that nearly always the only entry a look-up touches is the right one. The head's last byte counts the entries that passed this bucket because
// it was full and stand in a later one: where it is 0 a look-up ends. So removing an entry needs no tombstone, only a step back along its path.
// (A count of 255 stays until the table is rebuilt.)
type bucket struct {
	head  atomic.Uint64
	slots [slotsPerBucket]atomic.Pointer[Entry]
}

// table is open addressing over buckets. One writer at a time, under the shard's lock, and any number of readers without. Within a table an entry never
// moves; a writer fills the slot before the tag and clears the tag before the slot, so that a reader finds whatever is in the table all the while it looks.
// What it sees under a tag it read too early may be another entry, or none: it compares the key.
type table struct {
	buckets []bucket // a power of two
}

func newTable(buckets int) *table { return &table{buckets: make([]bucket, buckets)} }

// capacity is how many entries the table takes before it should grow: three quarters of its slots.
func (t *table) capacity() int { return len(t.buckets) * slotsPerBucket * 3 / 4 }

func (t *table) home(hash uint64) uint { return uint(hash) & uint(len(t.buckets)-1) }

func (t *table) after(i uint) uint { return (i + 1) & uint(len(t.buckets)-1) }

// tagOf takes bits that neither the shard, the stripe nor the bucket is chosen by.
func tagOf(hash uint64) uint64 { return max(hash>>32&0xff, 1) }

// find returns the entry of g under key, or nil. It needs no lock.
func (t *table) find(hash uint64, g *Group, key string) *Entry {
	pattern := tagOf(hash) * onesOfTags
	i := t.home(hash)
	for range t.buckets { // once around at most, whatever the heads say
		b := &t.buckets[i]
		head := b.head.Load()
		differ := head ^ pattern
		// Bytes that are zero get their highest bit. A byte above such a one may get it too, wrongly: the key decides.
		for equal := (differ - onesOfTags) &^ differ & highsOfTags; equal != 0; equal &= equal - 1 {
			e := b.slots[bits.TrailingZeros64(equal)/8].Load()
			if e != nil && e.Group == g && e.Key == key {
				return e
			}
		}
		if head>>passedShift == 0 {
			break
		}
		i = t.after(i)
	}
	return nil
}

// insert adds e, whose key must not be in the table, which must have room.
func (t *table) insert(hash uint64, e *Entry) {
	for i := t.home(hash); ; i = t.after(i) {
		b := &t.buckets[i]
		head := b.head.Load()
		for slot := range slotsPerBucket {
			if head>>(8*slot)&0xff == 0 {
				b.slots[slot].Store(e)
				b.head.Store(head | tagOf(hash)<<(8*slot))
				return
			}
		}
		if head>>passedShift < passedFull {
			b.head.Store(head + 1<<passedShift)
		}
	}
}

// replace puts e in the place of old, which has the same key and must be in the table.
func (t *table) replace(hash uint64, old, e *Entry) {
	i, slot := t.locate(hash, old)
	t.buckets[i].slots[slot].Store(e)
}

// remove takes out e, which must be in the table.
func (t *table) remove(hash uint64, e *Entry) {
	at, slot := t.locate(hash, e)
	b := &t.buckets[at]
	b.head.Store(b.head.Load() &^ (0xff << (8 * slot)))
	b.slots[slot].Store(nil)
	for i := t.home(hash); i != at; i = t.after(i) {
		b := &t.buckets[i]
		if head := b.head.Load(); head>>passedShift < passedFull {
			b.head.Store(head - 1<<passedShift)
		}
	}
}

// locate returns the bucket and slot of e, which must be in the table.
func (t *table) locate(hash uint64, e *Entry) (at uint, slot int) {
	for i := t.home(hash); ; i = t.after(i) {
		for slot := range slotsPerBucket {
			if t.buckets[i].slots[slot].Load() == e {
				return i, slot
			}
		}
	}
}

// rebuilt returns a table of that many buckets with the same entries. The old one stays as it is for readers that are still in it. Hashes are made anew:
// keeping them would cost each entry room for the sake of this moment.
func (t *table) rebuilt(buckets int) *table {
	n := newTable(buckets)
	for i := range t.buckets {
		for slot := range slotsPerBucket {
			if e := t.buckets[i].slots[slot].Load(); e != nil {
				n.insert(e.Group.hash(e.Key), e)
			}
		}
	}
	return n
}
