// This file is the line inside one process: who may ask the store next for a name. Lines across processes do not exist.

package lease

import (
	"context"
	"sync"
)

// Queue lets one caller per name through at a time, in the order of arrival, so that one waiter per process and name asks the store, however many wait. The
// zero Queue is ready. It is safe for concurrent use.
type Queue struct {
	mu    sync.Mutex // guards everything below, and the fields of every line and Turn
	lines map[string]*line
	shut  error
}

// line exists for as long as someone has the turn.
type line struct {
	turn    *Turn
	waiting []*Turn
}

// Turn is the right to ask for a name. Who has it gives it up with Leave or Fail.
type Turn struct {
	queue *Queue
	name  string
	held  bool
	left  bool
	err   error
	ready chan struct{} // closed when the turn has come, or err is set
}

// Enter waits for the turn until ctx ends, and then returns ctx's error; or until whoever has the turn reports with Fail an error that holds for all.
func (q *Queue) Enter(ctx context.Context, name string) (*Turn, error) {
	t, l, err := q.enter(name)
	if l == nil || err != nil {
		return t, err
	}
	select {
	case <-t.ready:
		if t.err != nil {
			return nil, t.err
		}
		return t, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if t.err == nil && l.turn == t { // it came at the same moment: pass it on
		q.advance(t)
	}
	l.remove(t)
	return nil, ctx.Err()
}

// enter returns a turn that has come (and no line), or one that waits in the line returned.
func (q *Queue) enter(name string) (*Turn, *line, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.shut != nil {
		return nil, nil, q.shut
	}
	t := &Turn{queue: q, name: name}
	l := q.lines[name]
	if l == nil {
		if q.lines == nil {
			q.lines = make(map[string]*line)
		}
		q.lines[name] = &line{turn: t}
		return t, nil, nil
	}
	t.ready = make(chan struct{})
	l.waiting = append(l.waiting, t)
	return t, l, nil
}

// TryEnter takes the turn if nobody has it, and otherwise returns nil and whether who has it reported with Hold that it holds the lease.
func (q *Queue) TryEnter(name string) (t *Turn, held bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l := q.lines[name]; l != nil {
		return nil, l.turn.held
	}
	if q.lines == nil {
		q.lines = make(map[string]*line)
	}
	t = &Turn{queue: q, name: name}
	q.lines[name] = &line{turn: t}
	return t, false
}

// Hold reports that who has the turn has the lease too and keeps both: until Leave, nobody behind it needs to ask the store.
func (t *Turn) Hold() {
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	t.held = true
}

// Leave passes the turn on. Leaving again, or leaving nil, does nothing.
func (t *Turn) Leave() {
	if t == nil {
		return
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	t.queue.advance(t)
}

// Fail gives err to everyone who waits behind t, and passes the turn on: where the store cannot be reached, nobody finds that out one after another. On nil
// it does nothing.
func (t *Turn) Fail(err error) {
	if t == nil {
		return
	}
	t.queue.mu.Lock()
	defer t.queue.mu.Unlock()
	if l := t.queue.lines[t.name]; l != nil && l.turn == t {
		l.fail(err)
	}
	t.queue.advance(t)
}

// Shut gives err to everyone who waits, and to everyone who comes to wait later.
func (q *Queue) Shut(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shut = err
	for _, l := range q.lines {
		l.fail(err)
	}
}

// fail gives err to everyone who waits in the line. The caller holds the queue's mu.
func (l *line) fail(err error) {
	for _, w := range l.waiting {
		w.err, w.left = err, true
		close(w.ready)
	}
	l.waiting = nil
}

// advance gives t's turn to the next in line. The caller holds mu.
func (q *Queue) advance(t *Turn) {
	if t.left {
		return
	}
	t.left = true
	l := q.lines[t.name]
	if len(l.waiting) == 0 {
		delete(q.lines, t.name)
		return
	}
	l.turn, l.waiting = l.waiting[0], l.waiting[1:]
	close(l.turn.ready)
}

// remove takes t out of the line. The caller holds the queue's mu.
func (l *line) remove(t *Turn) {
	for i, w := range l.waiting {
		if w == t {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
}
