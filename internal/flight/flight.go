// Package flight lets all who want the same thing at the same time share one piece of work. A flight runs in a goroutine of its own, on a context of its own:
// whoever waits for it may leave without ending it for the others.
package flight

import (
	"context"
	"errors"
	"sync"
)

var (
	// ErrCycle ends a wait of one flight for another that, directly or not, waits for the first.
	ErrCycle = errors.New("flight: waiting would never end")
	// ErrAbandoned ends a flight that gave up because nobody waited for it any more. A caller that gets it has joined too late and starts another.
	ErrAbandoned = errors.New("flight: abandoned")
)

// Group holds the flights under way, at most one a key. The zero value is ready; it is safe for concurrent use.
type Group[V any] struct {
	mu    sync.Mutex // guards calls and the marked fields of each Call; held for a few instructions only
	calls map[string]*Call[V]
	// All flights under way, those that cannot be joined any more included: a list through their fields.
	first *Call[V]
}

// Call is one flight.
type Call[V any] struct {
	Node

	key   string
	done  chan struct{}
	value V
	err   error

	// Guarded by the group's mu.
	older, newer *Call[V]
	waiters      int
	joined       int
	mark         uint64
	abandonable  bool
	gone         context.Context // nil until Abandonable was called
	goes         context.CancelFunc
	finished     bool
}

// Join returns the flight for key, and whether the caller leads it: a leader must see to it that Finish is called. Everyone who joins must Wait or Leave.
func (g *Group[V]) Join(key string) (c *Call[V], leads bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil {
		c.waiters++
		c.joined++
		return c, false
	}
	if g.calls == nil {
		g.calls = make(map[string]*Call[V])
	}
	c = &Call[V]{key: key, done: make(chan struct{}), waiters: 1}
	c.init()
	g.calls[key] = c
	if c.older = g.first; c.older != nil {
		c.older.newer = c
	}
	g.first = c
	return c, true
}

// Wait returns what the flight brings, or ctx's own error as soon as ctx ends. from is the flight that waits, nil for a plain caller: a wait that closes a
// cycle ends with ErrCycle. Wait includes Leave.
func (g *Group[V]) Wait(ctx context.Context, c *Call[V], from *Node) (V, error) {
	defer g.Leave(c)
	var cycle chan struct{}
	if from != nil {
		select {
		case <-c.done:
			return c.value, c.err
		default:
		}
		e := c.wait(from)
		if e == nil {
			var none V
			return none, ErrCycle
		}
		defer c.Node.done(e)
		cycle = e.cycle
	}
	select {
	case <-c.done:
		return c.value, c.err
	case <-cycle:
		var none V
		return none, ErrCycle
	case <-ctx.Done():
	}
	select {
	case <-c.done: // both at once: the value is worth more
		return c.value, c.err
	default:
		var none V
		return none, ctx.Err()
	}
}

// Key is what the flight is for.
func (c *Call[V]) Key() string { return c.key }

// Done is closed when the flight has ended.
func (c *Call[V]) Done() <-chan struct{} { return c.done }

// Result returns what the flight brought; it may be called only once Done is closed.
func (c *Call[V]) Result() (V, error) { return c.value, c.err }

// Leave says that one who joined waits no longer.
func (g *Group[V]) Leave(c *Call[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.waiters--; c.waiters == 0 && c.abandonable && !c.finished {
		g.abandon(c)
	}
}

// Hold keeps the flight from ever being abandoned: somebody who does not wait wants its result.
func (g *Group[V]) Hold(c *Call[V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.waiters++
}

// Abandonable says from when (on) and until when (off) the flight gives up once nobody waits for it: gone is cancelled at that moment, and whoever comes later
// starts a flight of its own. It returns false when that has happened already.
func (g *Group[V]) Abandonable(c *Call[V], on bool) (gone context.Context, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.gone == nil {
		c.gone, c.goes = context.WithCancel(context.Background())
	}
	if c.abandonable = on; on && c.waiters == 0 && !c.finished {
		g.abandon(c)
	}
	return c.gone, c.gone.Err() == nil
}

func (g *Group[V]) abandon(c *Call[V]) {
	c.goes()
	g.remove(c)
}

func (g *Group[V]) remove(c *Call[V]) {
	if g.calls[c.key] == c {
		delete(g.calls, c.key)
	}
}

// Mark notes a number on the flight that Detach returns; the highest stays.
func (g *Group[V]) Mark(c *Call[V], mark uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c.mark = max(c.mark, mark)
}

// Detach lets those who come from now on start a flight of their own; those who have joined keep theirs. It returns the mark of the detached flight.
func (g *Group[V]) Detach(key string) (mark uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls[key]
	if c == nil {
		return 0
	}
	delete(g.calls, key)
	return c.mark
}

// Has reports whether a flight for key can be joined.
func (g *Group[V]) Has(key string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[key] != nil
}

// DetachBelow does what Detach does if the flight's mark is at most number.
func (g *Group[V]) DetachBelow(key string, number uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := g.calls[key]; c != nil && c.mark <= number {
		delete(g.calls, key)
	}
}

// Attached reports whether the flight can still be joined: it has not ended and was neither detached nor abandoned.
func (g *Group[V]) Attached(c *Call[V]) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls[c.key] == c
}

// DetachAll does what Detach does for every flight.
func (g *Group[V]) DetachAll() (mark uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		mark = max(mark, c.mark)
	}
	clear(g.calls)
	return mark
}

// Finish ends the flight: everyone who waits gets v and err. Only the first call counts, whose number of joiners it returns.
func (g *Group[V]) Finish(c *Call[V], v V, err error) (joined int, first bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.finished {
		return 0, false
	}
	c.finished = true
	c.value, c.err = v, err
	g.remove(c)
	if c.older != nil {
		c.older.newer = c.newer
	}
	if c.newer != nil {
		c.newer.older = c.older
	} else {
		g.first = c.older
	}
	c.older, c.newer = nil, nil
	close(c.done)
	return c.joined, true
}

// Drain waits until the flights that are under way now, those that cannot be joined any more included, have ended, or ctx ends. It does not wait for those that
// begin meanwhile.
func (g *Group[V]) Drain(ctx context.Context) {
	g.mu.Lock()
	var all []*Call[V]
	for c := g.first; c != nil; c = c.older {
		all = append(all, c)
	}
	g.mu.Unlock()
	for _, c := range all {
		select {
		case <-c.done:
		case <-ctx.Done():
			return
		}
	}
}

// Len is the number of flights under way that can still be joined.
func (g *Group[V]) Len() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.calls)
}
