package cache

// This file holds the queue, a doubly linked list through the entries themselves. Which queue an entry joins, and when it leaves, is decided in shard.go.

// place says which of a shard's queues an entry stands in.
type place uint8

const (
	nowhere   place = iota
	probation       // new: has to be read before its turn comes, or it goes
	protected       // was read in time, or came back soon after it went
)

// queue is a list of entries in the order in which they joined. The shard's lock guards it.
type queue struct {
	oldest, newest *Entry
	bytes          int64
	count          int
}

func (q *queue) join(e *Entry) {
	e.older, e.newer = q.newest, nil
	if q.newest != nil {
		q.newest.newer = e
	} else {
		q.oldest = e
	}
	q.newest = e
	q.bytes += Size(e)
	q.count++
}

// leave also clears e's links: a reader may hold e for long, and must not keep its former neighbours alive.
func (q *queue) leave(e *Entry) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		q.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		q.newest = e.older
	}
	e.older, e.newer = nil, nil
	q.bytes -= Size(e)
	q.count--
}
