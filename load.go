// Running a loader: on a goroutine and a context of its own, within MaxLoads and LoadTimeout, whatever it does. What becomes of its value stands in entry.go.

package onefill

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/onefill/onefill/internal/flight"
)

// load runs the loader for key and keeps the value. c is the fill that it runs for, claim the tier's leave to do so, if it gave one.
func (g *core) load(ctx context.Context, c *call, key string, claim Claim) (found, error) {
	return g.loadFor(ctx, &g.fills, c, key, claim, true)
}

// alone loads a key for a loader that must not wait for the fill of that key, since that fill waits for it. The value is for this caller and is not kept.
// times is how often the key stands in the caller's chain.
func (g *core) alone(ctx context.Context, key string, times int) (found, error) {
	if times > 1 {
		return found{}, ErrRecursion
	}
	var from *flight.Node
	if s := scopeFrom(ctx); s != nil {
		from = s.flight
		back := s.place.lend()
		defer back(ctx)
	}
	var flights flight.Group[found] // of one
	c, _ := flights.Join(key)
	g.launch(ctx, &flights, c, func(ctx context.Context, c *call) (found, error) {
		return g.loadFor(ctx, &flights, c, key, nil, false)
	})
	return flights.Wait(ctx, c, from)
}

func (g *core) loadFor(ctx context.Context, flights *flight.Group[found], c *call, key string, claim Claim, keep bool) (found, error) {
	place, err := g.queue(flights, c)
	if err != nil {
		g.giveBack(ctx, claim)
		return found{}, err
	}
	defer place.leave()
	chain := chainFrom(ctx)
	fill := &Fill{number: g.numberFor(claim), depth: len(chain)}
	if claim != nil {
		defer c.Watch(claim.Waits)()
	}
	flights.Mark(c, fill.number)
	l := g.begin(ctx, fill, fill.number, key)
	ctx = (&scope{chain: extend(chain, g.digest(key)), flight: &c.Node, fill: fill, place: place}).in(l.ctx)
	value, err := g.run(ctx, func(ctx context.Context) (any, error) { return g.loadOne(ctx, key) })
	e, err := l.end(key, value, err)
	if keep {
		g.deliver(ctx, flights, c, claim, e, err)
	}
	if err != nil {
		return found{loader: true}, err
	}
	return found{entry: e, how: OutcomeLoaded}, nil
}

// numberFor is the number of a load: the claim's fence where there is one.
func (g *core) numberFor(claim Claim) uint64 {
	if claim == nil {
		return g.mesh.nextNumber()
	}
	return claim.Fence()
}

// deliver keeps what a load has brought: in the tier first, which may know that it is too late, then in this process's memory.
func (g *core) deliver(ctx context.Context, flights *flight.Group[found], c *call, claim Claim, e *entry, err error) {
	switch {
	case e == nil && (g.mesh.tasks.Context().Err() != nil || !flights.Attached(c)): // cancelled for want of callers, say: no word about the key
		g.giveBack(ctx, claim)
		return
	case e == nil:
		g.abandon(ctx, claim, err)
		return
	case e.Flags&notFoundEntry != 0 && e.Flags&finalEntry != 0: // nothing to keep, and nothing of before either
		g.cache.Expel(g.cache.Hash(g.account, e.Key), g.account, e.Key, e.Number)
	}
	if claim != nil && !g.store(ctx, claim, e) {
		return
	}
	vouched := g.vouch(flights, c)
	if !flights.Attached(c) { // invalidated meanwhile, perhaps before its number was marked: for those who wait, here and elsewhere
		e.Flags |= finalEntry
	}
	g.keep(e, vouched)
}

// store hands an entry to the tier and reports whether it may be kept: not if the tier says that the claim was lost.
func (g *core) store(ctx context.Context, claim Claim, e *entry) bool {
	ctx, _, end := g.mesh.begin(ctx, Trip{Kind: TripStore, Group: g.name, Key: e.Key})
	a := g.answer(e, 0)
	a.Final = a.Final || int64(len(e.Data)) > g.set.maxValueBytes
	stored, err := claim.Fill(ctx, a)
	switch {
	case err != nil:
		g.stats.tierErrors.Add(1)
	case !stored:
		g.stats.tierRefused.Add(1)
	}
	end(Result{Number: e.Number, Err: err})
	return stored || err != nil
}

// abandon gives a claim back; those who wait for it get the loader's error.
func (g *core) abandon(ctx context.Context, claim Claim, err error) {
	if claim == nil {
		return
	}
	if err := claim.Abandon(ctx, loaderFailure(err)); err != nil {
		g.stats.tierErrors.Add(1)
	}
}

// giveBack gives a claim back unused: whoever waits for it is to take over.
func (g *core) giveBack(ctx context.Context, claim Claim) {
	if claim == nil {
		return
	}
	if err := claim.Abandon(ctx, nil); err != nil {
		g.stats.tierErrors.Add(1)
	}
}

// queue waits for a place among MaxLoads. A fill that nobody waits for any more gives up its place in the queue.
func (g *core) queue(flights *flight.Group[found], c *call) (*place, error) {
	if g.places == nil {
		return nil, nil
	}
	gone, ok := flights.Abandonable(c, true)
	if !ok {
		return nil, flight.ErrAbandoned
	}
	place, err := g.places.take(g.mesh.tasks.Context(), gone)
	if err != nil {
		return nil, closedOr(g.mesh.tasks.Context(), err)
	}
	if _, ok := flights.Abandonable(c, g.set.cancelAbandoned); !ok {
		place.leave()
		return nil, flight.ErrAbandoned
	}
	return place, nil
}

// vouch returns the number of the last invalidation that did not concern the flight's key, although it concerned its stripe: one that did would have
// detached the flight first.
func (g *core) vouch(flights *flight.Group[found], c *call) uint64 {
	floor := g.cache.Floor(g.account, c.Key())
	if !flights.Attached(c) {
		return 0
	}
	return floor
}

// loading is one load of one key under way.
type loading struct {
	g      *core
	ctx    context.Context
	fill   *Fill
	number uint64
	began  time.Time
	trip   *Trip
	done   func(Result)
}

// begin starts the account of a load: its trip, its time.
func (g *core) begin(ctx context.Context, fill *Fill, number uint64, key string) *loading {
	l := &loading{g: g, fill: fill, number: number, began: time.Now()}
	l.ctx, l.trip, l.done = g.mesh.begin(ctx, Trip{Kind: TripLoad, Group: g.name, Key: key})
	g.stats.loads.Add(1)
	return l
}

// end makes the entry of a load that has ended. For a value that is not found it returns both the entry that remembers that, and the error.
func (l *loading) end(key string, value any, err error) (*entry, error) {
	g, said, took := l.g, l.fill.close(), time.Since(l.began)
	var e *entry
	switch {
	case err == nil && !said.notFound:
		e, _ = g.made(key, value, said, l.number, took, l.trip.Trace) // its callers here get the value
	case err == nil:
		err = ErrNotFound
	}
	switch {
	case errors.Is(err, ErrNotFound):
		g.stats.notFound.Add(1)
		e = g.madeNotFound(key, said, l.number, took, l.trip.Trace)
	case err != nil:
		g.stats.loadErrors.Add(1)
	}
	l.done(found{entry: e, how: OutcomeLoaded}.result(err))
	return e, err
}

// loaded is what came of a loader.
type loaded struct {
	value any
	err   error
}

// run runs work, which calls the loader, and returns what came of it.
func (g *core) run(ctx context.Context, work func(context.Context) (any, error)) (any, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.set.loadTimeout, ErrLoadTimeout)
	defer cancel()
	closing := g.mesh.tasks.Context()
	defer context.AfterFunc(closing, cancel)()
	results := make(chan loaded, 1)
	if !g.mesh.tasks.Go(func(context.Context) { g.call(ctx, work, results) }) {
		return nil, ErrClosed
	}
	giveUp := time.NewTimer(g.set.loadTimeout + loadGrace)
	defer giveUp.Stop()
	select {
	case r := <-results:
		if ctx.Err() != nil && errors.Is(r.err, ctx.Err()) { // it obeyed: say why it was cancelled
			r.err = closedOr(closing, r.err)
			if errors.Is(context.Cause(ctx), ErrLoadTimeout) {
				r.err = fmt.Errorf("%w: %w", ErrLoadTimeout, r.err)
			}
		}
		return r.value, r.err
	case <-giveUp.C:
		g.mesh.log.Warn("a loader does not obey its context: given up", groupAttr(g.name))
		return nil, ErrLoadTimeout
	}
}

// call calls work and sends what came of it, whatever that does: it runs in a goroutine of its own, so that runtime.Goexit ends that one alone.
func (g *core) call(ctx context.Context, work func(context.Context) (any, error), results chan<- loaded) {
	r, returned := loaded{}, false
	defer func() {
		if !returned {
			r = loaded{err: &PanicError{Group: g.name, Value: recover(), Stack: string(debug.Stack())}}
			g.stats.panics.Add(1)
			g.mesh.log.Error("a loader panicked", groupAttr(g.name))
		}
		results <- r
	}()
	r.value, r.err = work(ctx)
	returned = true
}

// closedOr returns ErrClosed where an error is only the sign of closing, else err.
func closedOr(closing context.Context, err error) error {
	if closing.Err() != nil {
		return ErrClosed
	}
	return err
}
