// A mesh: this process's membership. It owns the memory, the goroutines and the groups, and joins them to the pool.

package onefill

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onefill/onefill/internal/cache"
	"github.com/onefill/onefill/internal/report"
	"github.com/onefill/onefill/internal/tasks"
)

// Mesh is a process's membership in the pool and the home of its groups. Its methods are safe for concurrent use.
type Mesh struct {
	namespace string
	peers     Peers // nil for a pool of one
	tier      Tier  // nil where there is none
	observer  Observer
	log       *report.Log
	cache     *cache.Cache // of all groups without MaxBytes
	tasks     *tasks.Set

	number atomic.Uint64 // the highest number seen: a Lamport clock (Lamport 1978, "Time, Clocks, and the Ordering of Events in a Distributed System")
	closed atomic.Bool

	mu     sync.Mutex // guards changes of groups, which are rare, and budget
	groups atomic.Pointer[map[string]*core]
	budget int64 // bytes that groups with MaxBytes of their own have not taken
}

// New makes the mesh of this process and joins it to the pool. A wrong field of cfg is an error that names it.
func New(cfg Config) (*Mesh, error) {
	switch {
	case cfg.Namespace == "":
		return nil, errors.New(`onefill: New: Config.Namespace is "": want a name that no other service uses`)
	case len(cfg.Namespace) > 255:
		return nil, fmt.Errorf("onefill: New: Config.Namespace has %d bytes: want at most 255", len(cfg.Namespace))
	case cfg.MaxBytes < 0:
		return nil, fmt.Errorf("onefill: New: Config.MaxBytes is %d: want 0 for the default, or more", cfg.MaxBytes)
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = memoryBudget()
	}
	m := &Mesh{
		namespace: cfg.Namespace, peers: cfg.Peers, tier: cfg.Tier, observer: cfg.Observer, log: report.New(cfg.Logger),
		cache: cache.New(cfg.MaxBytes), budget: cfg.MaxBytes, tasks: tasks.New(),
	}
	m.groups.Store(&map[string]*core{})
	m.tasks.Go(m.tick)
	if m.tier != nil {
		if err := m.tier.Join(m); err != nil {
			m.tasks.Stop()
			return nil, fmt.Errorf("onefill: New: Config.Tier: %w", err)
		}
	}
	if m.peers != nil {
		if err := m.peers.Join(m); err != nil {
			m.tasks.Stop()
			if m.tier != nil {
				_ = m.tier.Close(context.Background()) // the other error is the one that says why
			}
			return nil, fmt.Errorf("onefill: New: Config.Peers: %w", err)
		}
	}
	return m, nil
}

// tick keeps the coarse clocks going.
func (m *Mesh) tick(ctx context.Context) {
	ticker := time.NewTicker(cache.TickInterval)
	defer ticker.Stop()
	for {
		m.cache.Clock().Tick()
		for _, g := range *m.groups.Load() {
			if g.cache != m.cache {
				g.cache.Clock().Tick()
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// addGroup makes the core of a group.
func (m *Mesh) addGroup(name string, set *settings, codec codec, one func(context.Context, string) (any, error),
	many func(context.Context, []string) (map[string]any, error)) (*core, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	groups := *m.groups.Load()
	switch {
	case m.closed.Load():
		return nil, ErrClosed
	case name == "":
		return nil, errors.New("the name is empty")
	case len(name) > 1024:
		return nil, fmt.Errorf("the name has %d bytes: want at most 1024", len(name))
	case groups[name] != nil:
		return nil, errors.New("the mesh has a group of this name already")
	case set.maxBytes >= m.budget:
		return nil, fmt.Errorf("MaxBytes(%d): the mesh has %d bytes left", set.maxBytes, m.budget)
	}
	g := &core{mesh: m, name: name, set: set, codec: codec, loadOne: one, loadMany: many, places: newPlaces(set.maxLoads), cache: m.cache}
	if set.maxBytes > 0 {
		m.budget -= set.maxBytes
		m.cache.Resize(m.budget)
		g.cache = cache.New(set.maxBytes)
	}
	g.account, g.clock = g.cache.NewGroup(name, g.end), g.cache.Clock()
	m.setGroup(name, g)
	return g, nil
}

// setGroup replaces the map of groups by one with g under name, or without it where g is nil. The caller holds mu.
func (m *Mesh) setGroup(name string, g *core) {
	old := *m.groups.Load()
	groups := make(map[string]*core, len(old)+1)
	for n, o := range old {
		groups[n] = o
	}
	if groups[name] = g; g == nil {
		delete(groups, name)
	}
	m.groups.Store(&groups)
}

// group returns the group of that name, or nil.
func (m *Mesh) group(name string) *core { return (*m.groups.Load())[name] }

// Close removes the group from the mesh and frees its memory. Loads that are under way end with the mesh. A second Close returns ErrClosed.
func (g *Group[V]) Close() error {
	m := g.mesh
	m.mu.Lock()
	defer m.mu.Unlock()
	if g.stats.closed.Swap(true) {
		return ErrClosed
	}
	m.setGroup(g.name, nil)
	if g.cache != m.cache {
		m.budget += g.set.maxBytes
		m.cache.Resize(m.budget)
	}
	g.cache.RemoveGroup(g.account)
	return nil
}

// maxNumber is more than any clock in microseconds will show and any counter reach, so that nothing from outside makes numbers run over.
const maxNumber = 1 << 60

// Namespace implements Member.
func (m *Mesh) Namespace() string { return m.namespace }

// Clock implements Member.
func (m *Mesh) Clock() uint64 { return m.number.Load() }

// Merge implements Member.
func (m *Mesh) Merge(number uint64) {
	if number > maxNumber {
		m.log.Error("a number beyond all reason came from outside: not heeded")
		return
	}
	for {
		now := m.number.Load()
		if number <= now || m.number.CompareAndSwap(now, number) {
			return
		}
	}
}

// Forget implements Member.
func (m *Mesh) Forget() {
	for _, g := range *m.groups.Load() {
		g.cache.RemoveGroup(g.account)
	}
}

func (m *Mesh) nextNumber() uint64 { return m.number.Add(1) }

// route says whom to ask for a key: nobody where there is no pool.
func (m *Mesh) route(group, key string) Route {
	if m.peers == nil {
		return Route{}
	}
	return m.peers.Route(group, key)
}

func (m *Mesh) spread(ctx context.Context, inv *Invalidation) []Ack {
	if m.peers == nil {
		return nil
	}
	return m.peers.Spread(ctx, inv)
}

// listed reports whether invalidations reach this process.
func (m *Mesh) listed() bool { return m.peers == nil || m.peers.Listed() }

func (m *Mesh) self() string {
	if m.peers == nil {
		return ""
	}
	return m.peers.Self()
}

// Ready waits until the mesh can serve well: the first set of members is known, and the tier has answered or has been given up on for now. It returns ctx's error if that ends first; Gets work all the same.
func (m *Mesh) Ready(ctx context.Context) error {
	if m.closed.Load() {
		return ErrClosed
	}
	if m.peers != nil {
		if err := m.peers.Ready(ctx); err != nil {
			return err
		}
	}
	if m.tier != nil {
		return m.tier.Ready(ctx)
	}
	return nil
}

// Close leaves the pool and ends the mesh. Call it before http.Server.Shutdown of the server that serves the pool: it first stops owning keys and says so to
// its peers, then waits for the fills under way, which callers here and elsewhere still get, then stops answering peers. When ctx ends before that, loads
// are cancelled. It returns once every goroutine of the mesh has ended: the clock's tick, the flights, the loaders, and the pool's own; or ctx's error, if
// one of them, a loader that does not obey its context, say, outlives ctx by five seconds. Calling it again waits again.
func (m *Mesh) Close(ctx context.Context) error {
	var left error
	if !m.closed.Swap(true) && m.peers != nil {
		left = m.peers.Leave(ctx)
	}
	m.drain(ctx)
	m.mu.Lock()
	for _, g := range *m.groups.Load() {
		g.stats.closed.Store(true)
	}
	m.mu.Unlock()
	for _, g := range *m.groups.Load() {
		g.asks.Drain(ctx)
	}
	m.drain(ctx) // for questions that nobody could answer
	if m.peers != nil {
		left = errors.Join(left, m.peers.Close(ctx))
	}
	if m.tier != nil {
		left = errors.Join(left, m.tier.Close(ctx))
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadGrace)
	defer cancel()
	err := m.tasks.Close(last)
	for _, g := range *m.groups.Load() {
		g.cache.RemoveGroup(g.account)
	}
	return errors.Join(left, err)
}

// drain waits until no fill is under way or ctx ends.
func (m *Mesh) drain(ctx context.Context) {
	for _, g := range *m.groups.Load() {
		g.fills.Drain(ctx)
	}
}

func groupAttr(name string) slog.Attr { return slog.String("group", name) }
func peerAttr(id string) slog.Attr    { return slog.String("peer", id) }
func errAttr(err error) slog.Attr     { return slog.String("error", err.Error()) }
