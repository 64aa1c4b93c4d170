// Asking other processes for a key, and taking what they answer. Whom to ask is the pool's business; how the question travels, too.

package onefill

import (
	"context"
	"time"

	"github.com/onefill/onefill/internal/flight"
)

// fetch asks p for key. answered is false where p could not be reached, or cannot know the value: then the next process is asked.
func (g *core) fetch(ctx context.Context, c *call, p Peer, key string, have uint64) (f found, answered bool, err error) {
	ctx, trip, end := g.mesh.begin(ctx, Trip{Kind: TripFetch, Group: g.name, Key: key, Peer: p.ID(), BaggageKeys: g.set.baggage})
	ask := new(Ask)
	g.fillAsk(ctx, ask, c, key, have)
	ask.Trace, ask.Baggage = trip.Trace, trip.Baggage
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		var a *Answer
		if a, err = fetchOne(ctx, p, ask); err == nil && a.Status == StatusBusy {
			g.stats.busy.Add(1)
			if err = g.pause(c, pause); err == nil {
				continue
			}
			answered = true
			break
		}
		switch {
		case err == nil:
			f, answered, err = g.take(p.ID(), ask, a)
		case ctx.Err() != nil: // nobody waits any more: no reason to ask the next process
			answered, err = true, flight.ErrAbandoned
		}
		break
	}
	end(f.result(err))
	return f, answered, err
}

// A busy peer is asked again after a pause that doubles from minPause to maxPause: it has no room, which is no reason to load in its place.
const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

// pause lets time pass before a busy peer is asked again. A flight that nobody waits for meanwhile gives up.
func (g *core) pause(c *call, d time.Duration) error {
	gone, ok := g.asks.Abandonable(c, true)
	if !ok {
		return flight.ErrAbandoned
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-gone.Done():
	case <-g.mesh.tasks.Context().Done():
		return ErrClosed
	}
	if _, ok := g.asks.Abandonable(c, g.set.cancelAbandoned); !ok {
		return flight.ErrAbandoned
	}
	return nil
}

func (g *core) fillAsk(ctx context.Context, ask *Ask, c *call, key string, have uint64) {
	*ask = Ask{
		Group: g.name, Version: g.set.version, Key: key, Have: have,
		Floor: g.cache.Floor(g.account, key),
		Chain: chainFrom(ctx),
		Waits: c,
	}
}

func fetchOne(ctx context.Context, p Peer, ask *Ask) (a *Answer, err error) {
	p.Fetch(ctx, []*Ask{ask}, func(_ int, answer *Answer, failure error) { a, err = answer, failure })
	return a, err
}

// take turns a peer's answer into an entry and keeps it as a hot copy.
func (g *core) take(peer string, ask *Ask, a *Answer) (f found, answered bool, err error) {
	g.mesh.Merge(max(a.Number, a.Vouched))
	value := a.Status == StatusValue || a.Status == StatusNotFound && a.Number > 0
	switch {
	case a.moveOn():
		return found{}, false, nil
	case !value:
		if a.Life > 0 { // a load failed there: it says when it tries again
			g.retries.until(ask.Key, min(a.Life, max(g.set.retryAfter, maxRetryAfter)))
		}
		return found{loader: true}, true, a.failed(peer, g.name)
	case a.Number <= ask.Floor && a.Vouched < ask.Floor: // from before an invalidation that the peer was told of
		return found{}, false, nil
	}
	e, err := g.received(ask.Key, a)
	if err != nil {
		g.stats.decodeErrors.Add(1)
		g.mesh.log.Error("a peer's value cannot be decoded: loading it here", groupAttr(g.name), peerAttr(peer), errAttr(err))
		return found{}, false, err
	}
	g.stats.fetches.Add(1)
	g.keep(e, a.Vouched)
	return found{entry: e, how: OutcomePeer}, true, nil
}
