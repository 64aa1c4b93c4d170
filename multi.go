// Many keys at once: GetMulti and Refresh. Every key has its flight, as in Get; what is shared is the question to each owner and, in batch.go, the call of the
// loader.

package onefill

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
	g.mesh.tasks.Each(len(keys), atOnce, func(i int) { errs[i] = g.refresh(ctx, keys[i]) })
	return errors.Join(errs...)
}

// atOnce bounds the keys of one call that are worked on at a time where each is a trip of its own.
const atOnce = 64

// refresh loads key again where it belongs and drops older copies everywhere.
func (g *core) refresh(ctx context.Context, key string) error {
	if err := g.refuse(ctx, key); err != nil {
		return err
	}
	if count(chainFrom(ctx), g.digest(key)) > 0 { // a loader that refreshes its own key
		return ErrRecursion
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
				if f, answered, err := g.fetch(ctx, c, p, key, anew); answered {
					return f, err
				}
			}
			return g.fill(ctx, key, g.mesh.Clock())
		})
	}
	old := g.mesh.Clock()
	switch {
	case errors.Is(err, ErrNotFound): // copies are old all the same
	case err != nil:
		return err
	default:
		old = f.Number - 1
	}
	return errors.Join(err, g.spreadDrop(ctx, &Invalidation{Group: g.name, Version: g.set.version, Keys: []string{key}, Number: old}))
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
	g := m.g
	var from *flight.Node
	if s := scopeFrom(m.ctx); s != nil && len(m.waits) > 0 {
		from = s.flight
		back := s.place.lend()
		defer back(m.ctx)
	}
	for i := range m.waits {
		w := &m.waits[i]
		f, err := g.softly(m.ctx, w.key, 0, func(ctx context.Context) (found, error) { return m.wait(ctx, w, from) })
		m.found(w.key, f.entry, err)
	}
	return errors.Join(m.errs...)
}

// wait waits for one flight, as share does; from is the flight that waits.
func (m *multi) wait(ctx context.Context, w *wait, from *flight.Node) (found, error) {
	if w.c == nil {
		return m.g.find(ctx, w.key)
	}
	f, err := w.flights.Wait(ctx, w.c, from)
	switch {
	case errors.Is(err, flight.ErrAbandoned):
		return m.g.find(ctx, w.key)
	case errors.Is(err, flight.ErrCycle):
		return m.g.alone(ctx, w.key, 1)
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
