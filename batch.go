// LoadBatch: one call of the loader for the fills of many keys, whether GetMulti or a peer's request wants them.

package onefill

import (
	"context"
	"slices"
	"sync/atomic"
)

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
	started := g.mesh.tasks.Go(func(context.Context) {
		ctx, stop := g.whileWanted(ctx, b.calls)
		defer stop()
		g.loadBatch(ctx, b.calls)
	})
	if !started {
		for _, c := range b.calls {
			g.fills.Finish(c, found{}, ErrClosed)
		}
	}
}

// whileWanted returns a context that, with CancelAbandoned, ends when nobody waits for any of the calls any more.
func (g *core) whileWanted(ctx context.Context, calls []*call) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if !g.set.cancelAbandoned {
		return ctx, cancel
	}
	var wanted atomic.Int64
	wanted.Store(int64(len(calls)))
	for _, c := range calls {
		gone, _ := g.fills.Abandonable(c, true)
		context.AfterFunc(gone, func() {
			if wanted.Add(-1) == 0 {
				cancel()
			}
		})
	}
	return ctx, cancel
}

func extendAll(chain, more []uint64) []uint64 { return append(slices.Clone(chain), more...) }

// loadBatch is load for many keys. A key that the loader's map lacks is not found if the loader succeeded.
func (g *core) loadBatch(ctx context.Context, calls []*call) {
	calls = slices.DeleteFunc(calls, func(c *call) bool {
		e := g.fresh(c.Key())
		if e != nil { // arrived while we queued
			g.fills.Finish(c, found{entry: e, how: OutcomeLocal}, nil)
		}
		return e != nil
	})
	calls, claims := g.claimBatch(ctx, calls)
	if len(calls) == 0 {
		return
	}
	place, err := g.places.take(g.mesh.tasks.Context(), ctx)
	if err != nil {
		for i, c := range calls {
			g.giveBack(ctx, claims[i])
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
	all, err := g.run(ctx, func(ctx context.Context) (any, error) { return g.loadMany(ctx, keys) })
	values, _ := all.(map[string]any)
	settle := func(i int) { g.settle(ctx, calls[i], loads[i], claims[i], values, err) }
	if g.tier() == nil { // nothing to wait for
		for i := range calls {
			settle(i)
		}
		return
	}
	g.mesh.tasks.Each(len(calls), atOnce, settle)
}

// claimBatch claims the keys of a batch from the tier, all at once, and returns those that are this process's to load, with their claims. What the tier has is
// taken, and what another cluster is filling goes on alone. A claim is nil where the tier is down or there is none.
func (g *core) claimBatch(ctx context.Context, calls []*call) (mine []*call, claims []Claim) {
	if g.tier() == nil {
		return calls, make([]Claim, len(calls))
	}
	replies, errs := make([]ClaimReply, len(calls)), make([]error, len(calls))
	g.mesh.tasks.Each(len(calls), atOnce, func(i int) {
		replies[i], errs[i] = g.claim(ctx, calls[i], TierKey{g.name, g.set.version, calls[i].Key()}, 0, &tierWait{})
	})
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
		g.fills.Finish(c, found{loader: true}, err)
		return
	}
	g.fills.Finish(c, found{entry: e, how: OutcomeLoaded}, nil)
}
