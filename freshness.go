// How fresh an entry is, and who loads it again before a caller has to wait: early refresh, stale values, and the pause after a failure.
//
// Early refresh follows Vattani, Chierichetti, Lowenstein (2015), "Optimal Probabilistic Cache Stampede Prevention": a read refreshes when
// now + delta*beta*Exp(1) reaches the entry's end, delta being how long the last load took. Alone that leaves a caller waiting in many periods of a key that is
// read a few times in each delta, hence the guard: within two deltas of its end any read refreshes. The flight and the tier's claim fold those that are elected
// at once into one load.
//
// An entry's Fresh lies before its end by its lead, within which a refresh may be due; a read before Fresh, which is nearly every read, compares one number,
// by the coarse clock. Whoever looks closer reads the exact one: loads may be shorter than a tick.

package onefill

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/cache"
	"github.com/onefill/onefill/internal/flight"
)

const (
	// guard is how many load durations before an entry's end any read refreshes it.
	guard = 2
	// elections is how many times beta load durations before its end the elections begin: earlier ones succeed once in 3,000 reads.
	elections = 8
	// hotLead is the part of HotTTL at the end of a copy's stay in which the next read asks the owner again.
	hotLead = 5
)

// born gives an entry that was made just now its life. A load that took longer than a quarter of it counts as a quarter, so that the entry is not refreshed all
// the time. Copies take over what their original counts: their life may be its last moments.
func (g *core) born(e *entry, life time.Duration) {
	e.Delta = min(e.Delta, microseconds(life/4))
	g.live(e, life)
}

// live gives an entry its life from now on.
func (g *core) live(e *entry, life time.Duration) {
	e.Fresh = g.clock.Exact() + int64(life) - g.lead(e)
}

// stay is how long a copy of a value with that much life left is kept, and whether it goes before the value's end. It comes up for renewal no later than the
// value's guard begins: from such reads alone its owner learns that a refresh is due.
func (g *core) stay(left, delta time.Duration) (stay time.Duration, capped bool) {
	if left <= g.set.hotTTL {
		return left, false
	}
	if early := left - guard*delta; early > 0 {
		return min(g.set.hotTTL, early+g.set.hotTTL/hotLead), true
	}
	return g.set.hotTTL, true
}

// lead is by how many nanoseconds Fresh lies before the entry's end.
func (g *core) lead(e *entry) int64 {
	switch {
	case g.set.beta < 0:
		return 0
	case e.Flags&cappedEntry != 0:
		return int64(g.set.hotTTL / hotLead)
	}
	return int64(max(guard, elections*g.set.beta)*float64(e.Delta)*float64(time.Microsecond)) + int64(cache.TickInterval)
}

// expires is the end of an entry's life, by the cache's clock.
func (g *core) expires(e *entry) int64 { return e.Fresh + g.lead(e) }

// end is until when an entry is of use to anybody.
func (g *core) end(e *entry) int64 {
	if e.Flags&(cappedEntry|notFoundEntry) != 0 {
		return g.expires(e)
	}
	return g.expires(e) + int64(g.set.staleFor)
}

// alive reports whether an entry has not reached its end.
func (g *core) alive(e *entry) bool {
	return g.clock.Now() < e.Fresh || g.clock.Exact() < g.expires(e)
}

// stale reports whether an entry that has reached its end may still be served. A copy whose stay has ended is not stale: its owner may have a newer one. Nor is
// "not found": a value may be there by now.
func (g *core) stale(e *entry) bool {
	return e.Flags&(cappedEntry|notFoundEntry) == 0 && g.clock.Exact() < g.expires(e)+int64(g.set.staleFor)
}

// read returns the entry for key if it can be served without waiting, and sees to it that it is loaded again in the background where that is due.
func (g *core) read(key string) *entry {
	e := g.cache.Get(g.cache.Hash(g.account, key), g.account, key)
	if e == nil || g.clock.Now() < e.Fresh {
		return e
	}
	return g.second(e)
}

// second is the second thought about an entry whose life is near its end or over.
func (g *core) second(e *entry) *entry {
	left := g.expires(e) - g.clock.Exact()
	switch {
	case left <= 0 && !g.stale(e):
		return nil
	case left <= 0:
		if g.set.softTimeout > 0 && !g.retries.waiting(e.Key) {
			return nil // the caller waits a little first, see softly
		}
		g.stats.stale.Add(1)
		g.refreshSoon(e, e.Number)
	case e.Flags&cappedEntry != 0:
		g.refreshSoon(e, 0)
	case g.elected(e, left):
		g.refreshSoon(e, e.Number)
	}
	return e
}

// elected reports whether a read with that much of the entry's life left is to refresh it.
func (g *core) elected(e *entry, left int64) bool {
	delta := float64(e.Delta) * float64(time.Microsecond)
	return float64(left) < guard*delta || delta*g.set.beta*rand.ExpFloat64() >= float64(left)
}

// staleNow returns the stale entry for key, if there is one that may be served.
func (g *core) staleNow(key string) *entry {
	if g.set.staleFor == 0 {
		return nil
	}
	e := g.cache.Peek(g.cache.Hash(g.account, key), g.account, key)
	if e == nil || g.alive(e) || !g.stale(e) {
		return nil
	}
	return e
}

// softly waits, with wait, for the value of a key. Where there is a stale one, newer than have, it waits no longer than SoftTimeout, and takes the stale value also
// if the load fails; the load goes on. Where the time of the stale value is over meanwhile, it waits on.
func (g *core) softly(ctx context.Context, key string, have uint64, wait func(context.Context) (found, error)) (found, error) {
	old := g.staleNow(key)
	if old == nil || old.Number <= have {
		return wait(ctx)
	}
	g.refreshSoon(old, old.Number) // whose flight nobody can abandon
	waiting := ctx
	if g.set.softTimeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, g.set.softTimeout)
		defer cancel()
	}
	f, err := wait(waiting)
	switch {
	case err == nil, errors.Is(err, ErrNotFound), ctx.Err() != nil:
		return f, err
	case g.stale(old):
		g.stats.stale.Add(1)
		return found{entry: old, how: OutcomeStale}, nil
	case waiting.Err() != nil:
		return wait(ctx)
	}
	return f, err
}

// refreshSoon loads the entry's key again in the background, unless that is under way, has just failed, or too many refreshes run. have is the number of the
// value that is not wanted again.
func (g *core) refreshSoon(e *entry, have uint64) {
	key := e.Key
	route := g.mesh.route(g.name, key)
	flights := &g.asks
	if route[0] == nil {
		flights, have = &g.fills, e.Number
	}
	if flights.Has(key) || g.retries.waiting(key) { // in this order: a flight notes its failure before it ends
		return
	}
	if g.stats.refreshing.Add(1) > int64(g.set.maxRefreshes) {
		g.stats.refreshing.Add(-1)
		g.stats.refreshesSkipped.Add(1)
		return
	}
	c, leads := flights.Join(key) // the background's own wait is never left, so the refresh is never abandoned
	if !leads {
		flights.Leave(c)
		g.stats.refreshing.Add(-1)
		return
	}
	g.launch(context.Background(), flights, c, func(ctx context.Context, c *call) (found, error) {
		defer g.stats.refreshing.Add(-1)
		var f found
		var err error
		if route[0] != nil {
			f, err = g.askRoute(ctx, c, route, key, have)
		} else {
			f, err = g.filling(ctx, c, have)
		}
		g.tried(e, key, err)
		switch {
		case err == nil, errors.Is(err, ErrNotFound):
			g.stats.refreshes.Add(1)
		case failed(err):
			g.stats.refreshErrors.Add(1)
			g.mesh.log.Warn("a refresh in the background failed", groupAttr(g.name))
		}
		return f, err
	})
}

// tried is told how an attempt to have a newer value than old, which may be nil, ended. Where it brought one, keep has ended the pause between retries.
func (g *core) tried(old *entry, key string, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		g.retries.succeeded(key)
		if old != nil { // else it would be served, and the source asked, until its end
			g.cache.Remove(old)
		}
	case failed(err):
		g.retries.failed(key, g.set.retryAfter)
	}
}

// failed reports whether err says that the source could not tell.
func failed(err error) bool {
	return err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrClosed) && !errors.Is(err, flight.ErrAbandoned)
}

// retries holds the keys whose last load has failed. It forgets them after four to eight of the longest pauses. The zero value is ready.
type retries struct {
	mu      sync.Mutex // guards what follows
	m, old  map[string]retry
	renewed time.Time // when m became old
}

type retry struct {
	at    time.Time
	pause time.Duration
}

const (
	maxRetryAfter = 30 * time.Second
	maxRetries    = 1 << 14 // keys that pause at a time; more are tried again as if they had not failed
)

// last returns what is known of key. The caller holds mu.
func (r *retries) last(key string) (retry, bool) {
	if last, ok := r.m[key]; ok {
		return last, true
	}
	last, ok := r.old[key]
	return last, ok
}

// waiting reports whether it is too early to try key again.
func (r *retries) waiting(key string) bool { return r.left(key) > 0 }

// left is what is left of the pause of key, zero or less where it is over.
func (r *retries) left(key string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.m)+len(r.old) == 0 {
		return 0
	}
	last, ok := r.last(key)
	if !ok {
		return 0
	}
	return time.Until(last.at)
}

// until sets the pause of a key that another process paces.
func (r *retries) until(key string, left time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, _ := r.last(key)
	r.set(key, retry{at: time.Now().Add(left), pause: max(left, last.pause)})
}

// failed doubles the pause of key, from first on.
func (r *retries) failed(key string, first time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	pause := first
	if last, ok := r.last(key); ok {
		if now.Before(last.at) {
			return // of the same attempt
		}
		pause = max(first, min(2*last.pause, maxRetryAfter))
	}
	r.set(key, retry{at: now.Add(pause), pause: pause})
}

// set notes the pause of key. The caller holds mu.
func (r *retries) set(key string, next retry) {
	if now := time.Now(); now.Sub(r.renewed) > 4*max(maxRetryAfter, next.pause) { // a pause doubles only if it outlives itself and the load that follows
		r.m, r.old, r.renewed = make(map[string]retry), r.m, now
	}
	if len(r.m) < maxRetries {
		r.m[key] = next
	}
}

func (r *retries) succeeded(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, key)
	delete(r.old, key)
}
