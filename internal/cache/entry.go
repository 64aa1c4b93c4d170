package cache

// This file holds what the cache stores, an Entry, and what one costs. Where an entry stands among others is in queue.go and table.go.

import "sync/atomic"

// Entry is one value of one key. Whoever makes it sets the exported fields and stores it; from then on it is immutable, for it is read without a lock. To
// change a stored entry, store a changed Copy in its place.
//
// An entry is also its own node in the queues: 112 bytes, one of Go's size classes, and one pointer fewer to follow at a hit. What a hit reads comes first.
type Entry struct {
	Key   string
	Group *Group // whose entry this is, and in whose account it counts
	Data  string // the encoded bytes; may share memory with the []byte or string that users get
	Value any    // the value decoded once; nil where Data serves as the value
	Fresh int64  // clock nanoseconds until which a hit needs no second thought

	visited atomic.Uint32 // 1 when read since it joined its queue or since it was last spared there; the only field that a hit may write
	Flags   uint8         // of the storer's meaning
	place   place         // which queue it stands in; guarded by the shard's lock

	More   *More  // what few entries have; nil for most
	Number uint64 // its place in the order of values and invalidations of its key
	Delta  uint32 // microseconds that its load took; longer than 71 minutes is the largest number
	Twin   uint32 // bytes of memory behind Value, to be counted beside Data; 0 where Value is nil

	older, newer *Entry // neighbours in the queue; guarded by the shard's lock
}

// More is what few entries have or few reads need.
type More struct {
	Tags  []string
	Trace string // the span context of its load, as a W3C traceparent
}

// Copy returns an entry with the same exported fields that is stored nowhere.
func (e *Entry) Copy() *Entry {
	return &Entry{Key: e.Key, Group: e.Group, Data: e.Data, Value: e.Value, Fresh: e.Fresh, Flags: e.Flags, More: e.More, Number: e.Number, Delta: e.Delta,
		Twin: e.Twin}
}

// What an entry costs besides its strings. The tests hold nodeBytes and moreBytes against unsafe.Sizeof and slotBytes against a filling table.
const (
	nodeBytes = 112
	moreBytes = 48
	slotBytes = 16 // a table's 64-byte buckets of seven slots, between three eighths and three quarters full
)

// Size is what e costs in bytes of memory: the node and its slot in the table, key and data rounded up as the allocator does, the decoded twin, tags.
func Size(e *Entry) int64 {
	size := nodeBytes + slotBytes + allocated(len(e.Key)) + allocated(len(e.Data)) + int64(e.Twin)
	if m := e.More; m != nil {
		size += moreBytes + allocated(len(m.Trace)) + allocated(16*len(m.Tags))
		for _, tag := range m.Tags {
			size += allocated(len(tag))
		}
	}
	return size
}

// allocated rounds n up to 16 bytes: the step of Go's size classes up to 256. Above, they waste up to an eighth more, which is left out, since large values
// are often part of a larger buffer anyway.
func allocated(n int) int64 { return int64(n+15) &^ 15 }
