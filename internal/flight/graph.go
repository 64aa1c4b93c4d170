// The graph of waiting: which flight waits for which, so that a wait that could never end is seen before or while it is made. It knows nothing of what
// flights do. Edges exist only between flights, so plain callers cost it nothing.

package flight

import (
	"math/rand/v2"
	"slices"
	"sync"
)

// Node is one flight's place in the graph of waiting.
type Node struct {
	id uint64

	// What follows is guarded by graph.
	waitsFor map[*Node]int            // flights of this process that it waits for, and how often
	waiters  map[*edge]struct{}       // who waits for it
	remote   []uint64                 // IDs of flights elsewhere that it waits for, as last told
	watchers map[*func([]uint64)]bool // told when what it waits for changes
}

// edge is one wait of a flight for another.
type edge struct {
	from  *Node
	cycle chan struct{} // closed when the wait is found to be part of a cycle
	found bool
}

// graph guards the fields of every Node. One lock for the process is enough: only nested and remote waits take it, and each holds it for a short walk.
var graph sync.Mutex

// ID names the flight; it is random, so IDs of different processes do not meet.
func (n *Node) ID() uint64 { return n.id }

func (n *Node) init() { n.id = rand.Uint64() | 1 }

// wait notes that from waits for n. It returns nil when that would close a cycle.
func (n *Node) wait(from *Node) *edge {
	graph.Lock()
	if n.reaches(from) || slices.Contains(n.remote, from.id) {
		graph.Unlock()
		return nil
	}
	e := &edge{from: from, cycle: make(chan struct{})}
	if from.waitsFor == nil {
		from.waitsFor = make(map[*Node]int)
	}
	from.waitsFor[n]++
	if n.waiters == nil {
		n.waiters = make(map[*edge]struct{})
	}
	n.waiters[e] = struct{}{}
	n.breakCycles()
	from.changed()
	graph.Unlock()
	return e
}

// done takes back what wait noted.
func (n *Node) done(e *edge) {
	graph.Lock()
	delete(n.waiters, e)
	if e.from.waitsFor[n]--; e.from.waitsFor[n] == 0 {
		delete(e.from.waitsFor, n)
		e.from.changed()
	}
	graph.Unlock()
}

// Follow notes that n ends when leader does, since one piece of work serves both, until stop is called.
func (n *Node) Follow(leader *Node) (stop func()) {
	if n == leader {
		return func() {}
	}
	e := leader.wait(n)
	if e == nil {
		return func() {}
	}
	return func() { leader.done(e) }
}

// SetRemote notes the flights of other processes that n waits for. Waits for n that turn out to be part of a cycle end with ErrCycle.
func (n *Node) SetRemote(ids []uint64) {
	graph.Lock()
	n.remote = slices.Clone(ids)
	n.breakCycles()
	n.changed()
	graph.Unlock()
}

// Watch calls tell with the IDs of all flights that n waits for, itself first, whenever that changes, until stop is called. It calls it once at the start if
// n waits for anything. Calls are in the order of the changes, since they are made with the graph locked: tell must be quick and must not use this package.
func (n *Node) Watch(tell func([]uint64)) (stop func()) {
	graph.Lock()
	if n.watchers == nil {
		n.watchers = make(map[*func([]uint64)]bool)
	}
	n.watchers[&tell] = true
	if ids := n.all(); len(ids) > 1 {
		tell(ids)
	}
	graph.Unlock()
	return func() {
		graph.Lock()
		delete(n.watchers, &tell)
		graph.Unlock()
	}
}

// reaches reports whether n waits, directly or not, for target.
func (n *Node) reaches(target *Node) bool {
	found := false
	n.walkDown(map[*Node]bool{}, func(m *Node) { found = found || m == target || slices.Contains(m.remote, target.id) })
	return found
}

// all returns the IDs of n and of everything that it waits for.
func (n *Node) all() []uint64 {
	var ids []uint64
	n.walkDown(map[*Node]bool{}, func(m *Node) {
		ids = append(ids, m.id)
		ids = append(ids, m.remote...)
	})
	return ids
}

func (n *Node) walkDown(seen map[*Node]bool, visit func(*Node)) {
	if seen[n] {
		return
	}
	seen[n] = true
	visit(n)
	for m := range n.waitsFor {
		m.walkDown(seen, visit)
	}
}

func (n *Node) walkUp(seen map[*Node]bool, visit func(*Node)) {
	if seen[n] {
		return
	}
	seen[n] = true
	visit(n)
	for e := range n.waiters {
		e.from.walkUp(seen, visit)
	}
}

// breakCycles ends those waits in the part of the graph above n whose own flight, or one that waits for it, is among the flights that n waits for elsewhere.
func (n *Node) breakCycles() {
	ids := n.all()[1:]
	if len(ids) == 0 {
		return
	}
	for e := range n.waiters {
		cyclic := false
		e.from.walkUp(map[*Node]bool{}, func(m *Node) { cyclic = cyclic || slices.Contains(ids, m.id) })
		if cyclic && !e.found {
			e.found = true
			close(e.cycle)
		}
	}
}

// changed tells the watchers of n and of all that wait for it.
func (n *Node) changed() {
	n.walkUp(map[*Node]bool{}, func(m *Node) {
		for w := range m.watchers {
			(*w)(m.all())
		}
	})
}
