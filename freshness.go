// How fresh an entry is, and who loads it again before a caller has to wait: early refresh, stale values, and the pause after a failure.
//
// Early refresh follows Vattani, Chierichetti, Lowenstein (2015), "Optimal Probabilistic Cache Stampede Prevention": a read refreshes when
// now + delta*beta*Exp(1) reaches the entry's end, delta being how long the last load took. Alone that leaves a caller waiting in many periods of a key that is
// read a few times in each delta, hence the guard: within two deltas of its end any read refreshes. The flight and the tier's claim fold those that are elected
// at once into one load.
//
// An entry's Fresh lies before its end by its lead, within which a refresh may be due; a read before Fresh, which is nearly every read, compares one number.

package onefill

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

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

// live gives an entry its life from now on. Loads that take longer than a quarter of it count as a quarter, so that it is not refreshed all the time.
func (g *core) live(e *entry, life time.Duration) {
	e.Delta = min(e.Delta, microseconds(life/4))
	e.Fresh = g.clock.Exact() + int64(life) - g.lead(e)
}

// lead is by how many nanoseconds Fresh lies before the entry's end.
func (g *core) lead(e *entry) int64 {
	switch {
	case g.set.beta < 0:
		return 0
	case e.Flags&cappedEntry != 0:
		return int64(g.set.hotTTL / hotLead)
	}
	return int64(max(guard, elections*g.set.beta) * float64(e.Delta) * float64(time.Microsecond))
}

// expires is the end of an entry's life, by the cache's clock.
func (g *core) expires(e *entry) int64 { return e.Fresh + g.lead(e) }

// alive reports whether an entry has not reached its end.
func (g *core) alive(e *entry) bool {
	now := g.clock.Now()
	return now < e.Fresh || now < g.expires(e)
}

// stale reports whether an entry that has reached its end may still be served. A copy whose stay has ended is not stale: its owner may have a newer one.
func (g *core) stale(e *entry) bool {
	return e.Flags&cappedEntry == 0 && g.clock.Now() < g.expires(e)+int64(g.set.staleFor)
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
	now, expires := g.clock.Now(), g.expires(e)
	switch {
	case now >= expires && !g.stale(e):
		return nil
	case now >= expires:
		if g.set.softTimeout > 0 && !g.retries.waiting(e.Key) {
			return nil // the caller waits a little first, see soft
		}
		g.stats.stale.Add(1)
		g.refreshSoon(e, e.Number)
	case e.Flags&cappedEntry != 0:
		g.refreshSoon(e, 0)
	case g.elected(e, expires-now):
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
	e := g.cache.Peek(g.cache.Hash(g.account, key), g.account, key)
	if e == nil || !g.stale(e) {
		return nil
	}
	return e
}

// soft is find for a caller that has a stale value to fall back to: it waits no longer than SoftTimeout, and takes the stale value also if the load fails.
func (g *core) soft(ctx context.Context, key string) (found, error) {
	if g.set.staleFor == 0 {
		return g.find(ctx, key)
	}
	old := g.staleNow(key)
	if old == nil {
		return g.find(ctx, key)
	}
	waiting := ctx
	if g.set.softTimeout > 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(ctx, g.set.softTimeout)
		defer cancel()
	}
	f, err := g.find(waiting, key)
	if err == nil || errors.Is(err, ErrNotFound) || ctx.Err() != nil || !g.stale(old) {
		return f, err
	}
	if !errors.Is(err, waiting.Err()) || waiting.Err() == nil {
		g.retries.failed(key, g.set.retryAfter)
	}
	g.stats.stale.Add(1)
	return found{old, OutcomeStale}, nil
}

// refreshSoon loads the entry's key again in the background, unless that is under way, has just failed, or too many refreshes run. have is the number of the
// value that is not wanted again.
func (g *core) refreshSoon(e *entry, have uint64) {
	key := e.Key
	if g.retries.waiting(key) {
		return
	}
	route := g.mesh.route(g.name, key)
	flights := &g.fills
	if route[0] != nil {
		flights = &g.asks
	}
	if flights.Has(key) {
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
		g.refreshed(key, err)
		return f, err
	})
}

// refreshed is told how a refresh in the background ended.
func (g *core) refreshed(key string, err error) {
	switch {
	case err == nil, errors.Is(err, ErrNotFound):
		g.stats.refreshes.Add(1)
		g.retries.succeeded(key)
	case errors.Is(err, ErrClosed), errors.Is(err, flight.ErrAbandoned):
	default:
		g.stats.refreshErrors.Add(1)
		g.retries.failed(key, g.set.retryAfter)
		g.mesh.log.Warn("a refresh in the background failed", groupAttr(g.name))
	}
}

// retries holds the keys whose last refresh has failed. The zero value is ready.
type retries struct {
	mu sync.Mutex // guards m
	m  map[string]retry
}

type retry struct {
	at    time.Time
	pause time.Duration
}

const (
	maxRetryAfter = 30 * time.Second
	maxRetries    = 4096 // keys that are remembered; beyond, those whose pause is over are forgotten
)

// waiting reports whether it is too early to try key again.
func (r *retries) waiting(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last, ok := r.m[key]
	return ok && time.Now().Before(last.at)
}

// failed doubles the pause of key, from first on.
func (r *retries) failed(key string, first time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	pause := first
	if last, ok := r.m[key]; ok {
		if now.Before(last.at) {
			return // of the same attempt
		}
		pause = max(first, min(2*last.pause, maxRetryAfter))
	}
	if r.m == nil {
		r.m = make(map[string]retry)
	}
	if len(r.m) >= maxRetries {
		for k, old := range r.m {
			if now.After(old.at) {
				delete(r.m, k)
			}
		}
	}
	r.m[key] = retry{at: now.Add(pause), pause: pause}
}

func (r *retries) succeeded(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.m, key)
}
