// A group and its read path: get, find, fill. Each step is a room of its own: internal/cache is this process's memory, load.go runs the loader, peers.go says
// what is asked of other processes.

package onefill

import (
	"context"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/onefill/onefill/internal/cache"
	"github.com/onefill/onefill/internal/flight"
)

// Loader makes the value of a key: the expensive part. It runs on a context of its own, with the values but not the deadline of the Get that started it, is
// cancelled after LoadTimeout, and may be called for a Get in another process: it must depend on its key alone. An error that is ErrNotFound, or wraps it,
// says that there is no value. Inside it FillFrom(ctx) says how the value is to be kept.
type Loader[V any] func(ctx context.Context, key string) (V, error)

// Group is a named cache of values of one type, filled by one loader. Its methods are safe for concurrent use.
//
// Values are shared: callers must not modify what they get, unless the group has the Copy option. A []byte shares memory with the cache itself.
type Group[V any] struct {
	*core
	typed func(*entry) (V, error)
}

// NewGroup adds a group to a mesh. name is any non-empty string, the same in every process of the pool, and unique in the mesh. A wrong option is an error that
// names it.
func NewGroup[V any](m *Mesh, name string, load Loader[V], opts ...Option) (*Group[V], error) {
	wrong := func(err error) (*Group[V], error) { return nil, fmt.Errorf("onefill: NewGroup(%q): %w", name, err) }
	if m == nil {
		return wrong(errors.New("mesh is nil"))
	}
	set, err := newSettings(opts)
	if err != nil {
		return wrong(err)
	}
	if load == nil {
		return wrong(errors.New("loader is nil"))
	}
	many, err := batchOf[V](set)
	if err != nil {
		return wrong(err)
	}
	codec, typed, err := codecOf[V](set)
	if err != nil {
		return wrong(err)
	}
	one := func(ctx context.Context, key string) (any, error) { return load(ctx, key) }
	c, err := m.addGroup(name, set, codec, one, many)
	if err != nil {
		return wrong(err)
	}
	return &Group[V]{core: c, typed: typed}, nil
}

// Get returns the value of key: from this process's memory, else from the process that owns the key, else from the loader. Concurrent Gets share one load.
//
// It waits no longer than ctx allows and then returns ctx's own error; the load goes on for the others. Other errors: ErrNotFound, ErrKeyTooLong, ErrClosed,
// ErrRecursion, ErrLoadTimeout, ErrOverloaded, *PanicError, *EncodeError, the loader's own error where it ran in this process, and *LoadError where it ran in
// another. The value is shared with other callers and must not be modified, see Copy.
func (g *Group[V]) Get(ctx context.Context, key string) (V, error) {
	e, err := g.get(ctx, key)
	if err != nil {
		var none V
		return none, err
	}
	return g.typed(e)
}

// Peek returns the value of key if this process's memory holds it fresh. It asks nobody and does not count as a read.
func (g *Group[V]) Peek(key string) (V, bool) {
	e := g.cache.Peek(g.cache.Hash(g.account, key), g.account, key)
	if e == nil || !g.alive(e) || e.Flags&notFoundEntry != 0 {
		var none V
		return none, false
	}
	v, err := g.typed(e)
	return v, err == nil
}

// core is a group without its type.
type core struct {
	mesh     *Mesh
	name     string
	set      *settings
	codec    codec
	loadOne  func(ctx context.Context, key string) (any, error)
	loadMany func(ctx context.Context, keys []string) (map[string]any, error) // nil without LoadBatch

	cache   *cache.Cache
	account *cache.Group
	clock   *cache.Clock
	asks    flight.Group[found] // one question for each key that another process owns
	fills   flight.Group[found] // one fill for each key, whoever wants it
	places  *places             // what MaxLoads allows
	retries retries
	stats   groupStats
}

// found is what a flight brings: an entry and where it came from.
type found struct {
	*entry
	how    Outcome
	loader bool // with an error: it is the loader's own
}

// call is a flight of this package.
type call = flight.Call[found]

// get is the way of every read: what this process's memory can serve without waiting, else a search that an observer sees.
func (g *core) get(ctx context.Context, key string) (*entry, error) {
	if e := g.read(key); e != nil {
		g.stats.hits.Add(1)
		return known(e)
	}
	if err := g.refuse(ctx, key); err != nil {
		return nil, err
	}
	ctx, _, end := g.mesh.begin(ctx, Trip{Kind: TripGet, Group: g.name, Key: key})
	f, err := g.softly(ctx, key, 0, func(ctx context.Context) (found, error) { return g.find(ctx, key) })
	end(f.result(err))
	if err != nil {
		return nil, err
	}
	return known(f.entry)
}

// find returns what is known of key, asking in turn: this process, the key's owner and its deputy, and, where the key is this process's to fill, the loader.
func (g *core) find(ctx context.Context, key string) (found, error) {
	if e := g.fresh(key); e != nil {
		return found{entry: e, how: OutcomeLocal}, nil
	}
	if n := count(chainFrom(ctx), g.digest(key)); n > 0 { // a loader reads a key that is being filled around it
		return g.alone(ctx, key, n)
	}
	route := g.mesh.route(g.name, key)
	if route[0] == nil { // ours
		return g.fill(ctx, key, 0)
	}
	return g.share(ctx, &g.asks, key, func(ctx context.Context, c *call) (found, error) {
		return g.ask(ctx, c, route, key, 0)
	})
}

// ask asks the processes of route one after the other, as long as they cannot be reached or do not know the group, and fills the key here if none of them
// answers.
func (g *core) ask(ctx context.Context, c *call, route Route, key string, have uint64) (found, error) {
	if e := g.fresh(key); e != nil && e.Number > have { // arrived while we queued
		return found{entry: e, how: OutcomeLocal}, nil
	}
	return g.askRoute(ctx, c, route, key, have)
}

func (g *core) askRoute(ctx context.Context, c *call, route Route, key string, have uint64) (found, error) {
	for _, p := range route {
		if p == nil {
			break
		}
		if f, answered, err := g.fetch(ctx, c, p, key, have); answered {
			return f, err
		}
	}
	return g.fill(ctx, key, have)
}

// fill joins the fill of key that is under way in this process, or starts one. Peers' requests come in here. have is the number of a value that is not
// wanted again.
func (g *core) fill(ctx context.Context, key string, have uint64) (found, error) {
	return g.share(ctx, &g.fills, key, func(ctx context.Context, c *call) (found, error) {
		return g.filling(ctx, c, have)
	})
}

// filling is the work of a fill.
func (g *core) filling(ctx context.Context, c *call, have uint64) (f found, err error) {
	if e := g.fresh(c.Key()); e != nil && e.Number > have { // arrived while we queued
		return found{entry: e, how: OutcomeLocal}, nil
	}
	old := g.cache.Peek(g.cache.Hash(g.account, c.Key()), g.account, c.Key())
	if g.tier() != nil {
		f, err = g.throughTier(ctx, c, have)
	} else {
		f, err = g.load(ctx, c, c.Key(), nil)
	}
	g.tried(old, c.Key(), err)
	return f, err
}

// tier is the store that the group shares with other clusters, nil where there is none.
func (g *core) tier() Tier {
	if g.set.noTier {
		return nil
	}
	return g.mesh.tier
}

// share joins the flight for key, or starts one that does work, and waits for what it brings. Where waiting would never end, because that flight waits for
// the one that ctx belongs to, the key is loaded alone.
func (g *core) share(ctx context.Context, flights *flight.Group[found], key string, work func(context.Context, *call) (found, error)) (found, error) {
	var from *flight.Node
	if s := scopeFrom(ctx); s != nil {
		from = s.flight
		back := s.place.lend()
		defer back(ctx)
	}
	for {
		c, leads := flights.Join(key)
		if leads {
			g.launch(ctx, flights, c, work)
		}
		f, err := flights.Wait(ctx, c, from)
		switch {
		case errors.Is(err, flight.ErrAbandoned): // joined in the moment in which it gave up
			continue
		case errors.Is(err, flight.ErrCycle):
			return g.alone(ctx, key, 1)
		case err == nil && !leads:
			g.stats.joins.Add(1)
		}
		return f, err
	}
}

// launch starts the flight's work on a context of its own: the starter's values, nobody's deadline.
func (g *core) launch(ctx context.Context, flights *flight.Group[found], c *call, work func(context.Context, *call) (found, error)) {
	ctx = (&scope{chain: chainFrom(ctx), flight: &c.Node}).in(context.WithoutCancel(ctx))
	started := g.mesh.tasks.Go(func(context.Context) {
		if g.set.cancelAbandoned {
			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			defer cancel()
			gone, _ := flights.Abandonable(c, true)
			defer context.AfterFunc(gone, cancel)()
		}
		f, err := work(ctx, c)
		flights.Finish(c, f, err)
	})
	if !started {
		flights.Finish(c, found{}, ErrClosed)
	}
}

// fresh returns the entry that this process's memory holds for key, if it is fresh.
func (g *core) fresh(key string) *entry {
	e := g.cache.Get(g.cache.Hash(g.account, key), g.account, key)
	if e == nil || !g.alive(e) {
		return nil
	}
	return e
}

// refuse returns why a read of key is not even tried.
func (g *core) refuse(ctx context.Context, key string) error {
	if g.stats.closed.Load() {
		return ErrClosed
	}
	if int64(len(key)) > g.set.maxKeyBytes {
		return ErrKeyTooLong
	}
	return ctx.Err()
}

// digest names a key of this group in a chain.
func (g *core) digest(key string) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.WriteString(g.name) // never fails
	_, _ = d.Write([]byte{0xff, byte(len(g.name)), byte(len(g.name) >> 8)})
	_, _ = d.WriteString(key)
	return d.Sum64()
}

// known turns "not found" into its error.
func known(e *entry) (*entry, error) {
	if e.Flags&notFoundEntry != 0 {
		return nil, ErrNotFound
	}
	return e, nil
}

// result is what an observer is told at the end of a trip that brought f or err.
func (f found) result(err error) Result {
	switch {
	case errors.Is(err, ErrNotFound), err == nil && f.entry != nil && f.Flags&notFoundEntry != 0:
		return Result{Outcome: OutcomeNotFound}
	case err != nil, f.entry == nil: // or asked in vain: the peer cannot know the value
		return Result{Outcome: OutcomeFailed, Err: err}
	}
	r := Result{Outcome: f.how, Number: f.Number}
	if f.More != nil {
		r.Load = f.More.Trace
	}
	return r
}
