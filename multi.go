// Many keys at once: GetMulti and Refresh, and LoadBatch behind them. Every key has its flight, as in Get; what is shared is the question to each owner and
// the call of the loader.

package onefill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/onefill/onefill/internal/flight"
)

// GetMulti returns the values of keys, in one question to each process that owns some of them and, with LoadBatch, one call of the loader there. It returns
// the values that it has together with the errors for the other keys, joined: errors.Is finds ErrNotFound if any key was not found. Keys that occur twice
// count once. It waits no longer than ctx allows. The values are shared, as with Get.
func (g *Group[V]) GetMulti(ctx context.Context, keys []string) (map[string]V, error) {
	values := make(map[string]V, len(keys))
	m := &multi{g: g.core, ctx: ctx, put: func(key string, e *entry) (err error) {
		v, err := g.typed(e)
		if err == nil {
			values[key] = v
		}
		return err
	}}
	return values, m.run(keys)
}

// Refresh loads keys again now, in the processes that own them, whatever is cached, and drops the copies that other processes have. Until the new value is
// there readers get the old one. It waits until all is done or ctx ends, and returns the errors of the keys that could not be loaded, joined, with those of
// *InvalidateError. It also warms: keys that nobody has read yet are loaded as well, no more at once than MaxLoads allows.
func (g *Group[V]) Refresh(ctx context.Context, keys ...string) error {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	errs := make([]error, len(keys))
	var waiting sync.WaitGroup
	places := make(chan struct{}, refreshesAtOnce)
	for i, key := range keys {
		places <- struct{}{}
		waiting.Add(1)
		started := g.mesh.tasks.Go(func(context.Context) {
			defer func() { waiting.Done(); <-places }()
			errs[i] = g.refresh(ctx, key)
		})
		if !started {
			return ErrClosed
		}
	}
	waiting.Wait()
	return errors.Join(errs...)
}

// refreshesAtOnce bounds the keys that one Refresh has under way.
const refreshesAtOnce = 64

// refresh loads key again where it belongs and drops older copies everywhere.
func (g *core) refresh(ctx context.Context, key string) error {
	if err := g.refuse(ctx, key); err != nil {
		return err
	}
	var f found
	var err error
	if route := g.mesh.route(g.name, key); route[0] == nil {
		g.fills.Detach(key) // it began before this call
		f, err = g.fill(ctx, key, g.mesh.Clock())
	} else {
		g.asks.Detach(key)
		f, err = g.share(ctx, &g.asks, key, func(ctx context.Context, c *call) (found, error) {
			for _, p := range route {
				if p == nil {
					break
				}
				if f, answered, err := g.fetch(ctx, c, p, key, refreshed); answered {
					return f, err
				}
			}
			return g.fill(ctx, key, g.mesh.Clock())
		})
	}
	if err != nil {
		return err
	}
	return g.spreadDrop(ctx, &Invalidation{Group: g.name, Version: g.set.version, Keys: []string{key}, Number: f.Number - 1})
}

// multi is one GetMulti under way.
type multi struct {
	g    *core
	ctx  context.Context
	put  func(key string, e *entry) error // takes what was found
	errs []error

	waits []wait
	peers map[Peer][]*wait // what is to be asked of each owner
	own   batch            // what is to be loaded here in one call
}

// wait is a key that is not in memory.
type wait struct {
	key     string
	c       *call // nil for a key that is being filled around this call
	leads   bool
	flights *flight.Group[found]
	route   Route
}

func (m *multi) run(keys []string) error {
	m.waits = make([]wait, 0, len(keys)) // never grows, so that pointers into it hold
	seen := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		before := len(seen)
		if seen[key] = struct{}{}; len(seen) > before {
			m.add(key)
		}
	}
	m.start()
	return m.collect()
}

// add looks a key up and joins or begins its flight.
func (m *multi) add(key string) {
	g := m.g
	if e := g.read(key); e != nil {
		g.stats.hits.Add(1)
		m.found(key, e, nil)
		return
	}
	if err := g.refuse(m.ctx, key); err != nil {
		m.found(key, nil, err)
		return
	}
	m.waits = append(m.waits, wait{key: key, route: g.mesh.route(g.name, key)})
	w := &m.waits[len(m.waits)-1]
	if count(chainFrom(m.ctx), g.digest(key)) > 0 {
		return
	}
	w.flights = &g.fills
	if w.route[0] != nil {
		w.flights = &g.asks
	}
	w.c, w.leads = w.flights.Join(key)
	switch {
	case !w.leads:
	case w.route[0] != nil:
		if m.peers == nil {
			m.peers = make(map[Peer][]*wait)
		}
		m.peers[w.route[0]] = append(m.peers[w.route[0]], w)
	case g.loadMany != nil:
		m.own.add(w.c, nil)
	default:
		g.launch(m.ctx, &g.fills, w.c, func(ctx context.Context, c *call) (found, error) { return g.filling(ctx, c, 0) })
	}
}

// start sends the questions and calls the loader.
func (m *multi) start() {
	for p, waits := range m.peers {
		m.ask(p, waits)
	}
	m.g.launchBatch(m.ctx, &m.own)
}

// ask asks p for many keys in one request. Keys that it cannot answer go on alone, as in Get.
func (m *multi) ask(p Peer, waits []*wait) {
	g := m.g
	ctx := context.WithoutCancel(m.ctx)
	ctx, trip, end := g.mesh.begin(ctx, Trip{Kind: TripFetch, Group: g.name, Peer: p.ID(), BaggageKeys: g.set.baggage})
	memory, asks := make([]Ask, len(waits)), make([]*Ask, len(waits))
	for i, w := range waits {
		asks[i] = &memory[i]
		g.fillAsk(ctx, asks[i], w.c, w.key, 0)
		asks[i].Trace, asks[i].Baggage = trip.Trace, trip.Baggage
	}
	started := g.mesh.tasks.Go(func(context.Context) {
		p.Fetch(ctx, asks, func(i int, a *Answer, err error) {
			w := waits[i]
			if err == nil && a.Status != StatusBusy {
				if f, answered, err := g.take(p.ID(), asks[i], a); answered {
					g.asks.Finish(w.c, f, err)
					return
				}
			}
			if err != nil || a.Status != StatusBusy { // a busy one is asked again
				w.route = Route{w.route[1]}
			}
			g.launch(ctx, &g.asks, w.c, func(ctx context.Context, c *call) (found, error) { return g.ask(ctx, c, w.route, w.key, 0) })
		})
		end(Result{Outcome: OutcomePeer})
	})
	if !started {
		for _, w := range waits {
			g.asks.Finish(w.c, found{}, ErrClosed)
		}
	}
}

// collect waits for the flights.
func (m *multi) collect() error {
	var from *flight.Node
	if s := scopeFrom(m.ctx); s != nil && len(m.waits) > 0 {
		from = s.flight
		back := s.place.lend()
		defer back(m.ctx)
	}
	for i := range m.waits {
		w := &m.waits[i]
		f, err := m.wait(w, from)
		m.found(w.key, f.entry, err)
	}
	return errors.Join(m.errs...)
}

// wait waits for one flight, as share does; from is the flight that waits.
func (m *multi) wait(w *wait, from *flight.Node) (found, error) {
	if w.c == nil {
		return m.g.find(m.ctx, w.key)
	}
	f, err := w.flights.Wait(m.ctx, w.c, from)
	switch {
	case errors.Is(err, flight.ErrAbandoned):
		return m.g.find(m.ctx, w.key)
	case errors.Is(err, flight.ErrCycle):
		return m.g.alone(m.ctx, w.key, 1)
	case err == nil && !w.leads:
		m.g.stats.joins.Add(1)
	}
	return f, err
}

func (m *multi) found(key string, e *entry, err error) {
	if err == nil {
		e, err = known(e)
	}
	if err == nil {
		err = m.put(key, e)
	}
	if err != nil {
		m.errs = append(m.errs, keyError(key, err))
	}
}

// keyError says which key of a call an error belongs to.
func keyError(key string, err error) error { return fmt.Errorf("onefill: key %q: %w", key, err) }

// batch is a set of fills that one call of LoadBatch is to serve.
type batch struct {
	calls []*call
	chain []uint64
}

func (b *batch) add(c *call, chain []uint64) {
	b.calls = append(b.calls, c)
	for _, d := range chain {
		if !slices.Contains(b.chain, d) {
			b.chain = append(b.chain, d)
		}
	}
}

// launchBatch starts the fills of b: one call of LoadBatch for all whose values are not in memory by now.
func (g *core) launchBatch(ctx context.Context, b *batch) {
	if len(b.calls) == 0 {
		return
	}
	chain := extendAll(chainFrom(ctx), b.chain)
	ctx = (&scope{chain: chain, flight: &b.calls[0].Node}).in(context.WithoutCancel(ctx))
	started := g.mesh.tasks.Go(func(context.Context) { g.loadBatch(ctx, b.calls) })
	if !started {
		for _, c := range b.calls {
			g.fills.Finish(c, found{}, ErrClosed)
		}
	}
}

func extendAll(chain, more []uint64) []uint64 { return append(slices.Clone(chain), more...) }

// loadBatch is load for many keys. A key that the loader's map lacks is not found if the loader succeeded.
func (g *core) loadBatch(ctx context.Context, calls []*call) {
	calls = slices.DeleteFunc(calls, func(c *call) bool {
		e := g.fresh(c.Key())
		if e != nil { // arrived while we queued
			g.fills.Finish(c, found{e, OutcomeLocal}, nil)
		}
		return e != nil
	})
	calls, claims := g.claimBatch(ctx, calls)
	if len(calls) == 0 {
		return
	}
	place, err := g.places.take(g.mesh.tasks.Context(), context.Background())
	if err != nil {
		for i, c := range calls {
			g.abandon(ctx, claims[i], ErrClosed)
			g.fills.Finish(c, found{}, ErrClosed)
		}
		return
	}
	defer place.leave()
	keys := make([]string, len(calls))
	chain := chainFrom(ctx)
	fill := &Fill{depth: len(chain)} // one for all
	loads := make([]*loading, len(calls))
	for i, c := range calls {
		keys[i] = c.Key()
		chain = extend(chain, g.digest(c.Key()))
		number := g.numberFor(claims[i])
		fill.number = max(fill.number, number)
		loads[i] = g.begin(ctx, fill, number, c.Key())
		g.fills.Mark(c, number)
		defer c.Follow(&calls[0].Node)()
	}
	ctx = (&scope{chain: chain, flight: &calls[0].Node, fill: fill, place: place}).in(loads[0].ctx)
	all, err := g.run(ctx, context.Background(), func(ctx context.Context) (any, error) { return g.loadMany(ctx, keys) })
	values, _ := all.(map[string]any)
	var settling sync.WaitGroup
	for i, c := range calls {
		if claims[i] == nil { // nothing to wait for
			g.settle(ctx, c, loads[i], nil, values, err)
			continue
		}
		settling.Go(func() { g.settle(ctx, c, loads[i], claims[i], values, err) })
	}
	settling.Wait()
}

// claimBatch claims the keys of a batch from the tier, all at once, and returns those that are this process's to load, with their claims. What the tier has is
// taken, and what another cluster is filling goes on alone. A claim is nil where the tier is down or there is none.
func (g *core) claimBatch(ctx context.Context, calls []*call) (mine []*call, claims []Claim) {
	if g.tier() == nil {
		return calls, make([]Claim, len(calls))
	}
	replies, errs := make([]ClaimReply, len(calls)), make([]error, len(calls))
	var claiming sync.WaitGroup
	for i, c := range calls {
		claiming.Go(func() {
			replies[i], errs[i] = g.claim(ctx, c, TierKey{g.name, g.set.version, c.Key()}, 0, &tierWait{})
		})
	}
	claiming.Wait()
	for i, c := range calls {
		switch reply := replies[i]; {
		case errs[i] != nil:
			g.stats.tierErrors.Add(1)
			mine, claims = append(mine, c), append(claims, nil)
		case reply.State == ClaimGranted:
			mine, claims = append(mine, c), append(claims, reply.Claim)
		default:
			if reply.State == ClaimValue {
				if f, err := g.takeTier(c, reply.Value); err == nil {
					g.fills.Finish(c, f, nil)
					continue
				}
			}
			g.launch(ctx, &g.fills, c, func(ctx context.Context, c *call) (found, error) { return g.filling(ctx, c, 0) })
		}
	}
	return mine, claims
}

// settle ends one key's part of a batch.
func (g *core) settle(ctx context.Context, c *call, l *loading, claim Claim, values map[string]any, err error) {
	value, ok := values[c.Key()]
	switch {
	case ok:
		err = nil
	case err == nil:
		err = ErrNotFound
	}
	e, err := l.end(c.Key(), value, err)
	g.deliver(ctx, &g.fills, c, claim, e, err)
	if err != nil {
		g.fills.Finish(c, found{}, err)
		return
	}
	g.fills.Finish(c, found{e, OutcomeLoaded}, nil)
}
