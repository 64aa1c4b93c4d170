// Answering peers: from memory, or by joining or starting a fill. A peer's question is never passed on to a third process, so two processes that each think
// the other owns a key do not wait for each other.

package onefill

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/flight"
)

// anew as Ask.Have says: load again, whatever there is.
const anew = math.MaxUint64

// Serve implements Member.
func (m *Mesh) Serve(from string, asks []*Ask, reply func(int, *Answer), waits func(int, []uint64)) (leave func(int)) {
	s := &serving{m: m, from: from, reply: reply, waits: waits}
	var batches map[*core]*batch
	for i, ask := range asks {
		g, c := s.begin(i, ask)
		if c == nil {
			continue
		}
		if batches == nil {
			batches = make(map[*core]*batch)
		}
		if batches[g] == nil {
			batches[g] = &batch{}
		}
		batches[g].add(c, ask.Chain)
	}
	for g, b := range batches {
		g.launchBatch(context.Background(), b)
	}
	return s.leave
}

// serving is one request of a peer.
type serving struct {
	m     *Mesh
	from  string
	reply func(int, *Answer)
	waits func(int, []uint64)

	mu     sync.Mutex // guards cancel
	cancel map[int]context.CancelFunc
}

// leave ends the wait for ask i: the peer does not want the answer any more.
func (s *serving) leave(i int) {
	s.mu.Lock()
	cancel := s.cancel[i]
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// begin answers the ask if it can be answered at once. Otherwise it joins the fill of the key, and returns the fill if it is to be launched together with
// others of the request.
func (s *serving) begin(i int, ask *Ask) (*core, *call) {
	g := s.m.group(ask.Group)
	switch {
	case s.m.closed.Load():
		s.reply(i, &Answer{Status: StatusClosed})
		return nil, nil
	case g == nil || g.stats.closed.Load():
		s.reply(i, &Answer{Status: StatusUnknownGroup})
		return nil, nil
	case g.set.version != ask.Version:
		s.reply(i, &Answer{Status: StatusOtherVersion})
		return nil, nil
	case int64(len(ask.Key)) > g.set.maxKeyBytes:
		s.reply(i, &Answer{Status: StatusKeyTooLong, Text: ErrKeyTooLong.Error()})
		return nil, nil
	}
	ctx, _, end := s.m.begin(context.Background(), Trip{Kind: TripServe, Group: ask.Group, Key: ask.Key, Peer: s.from, Trace: ask.Trace, Baggage: ask.Baggage})
	have := g.heed(ask)
	vouched := g.cache.Floor(g.account, ask.Key) // before the look-up: see cache.Invalidate
	if e := g.read(ask.Key); e != nil && e.Number > have {
		g.stats.served.Add(1)
		s.reply(i, g.answer(e, vouched))
		end(found{entry: e, how: OutcomeLocal}.result(nil))
		return nil, nil
	}
	if left := g.paused(ask, have); left > 0 {
		s.reply(i, &Answer{Status: StatusError, Text: errPaused.Error(), Life: left})
		end(Result{Outcome: OutcomeFailed, Err: errPaused})
		return nil, nil
	}
	c, leads := g.fills.Join(ask.Key)
	ctx = (&scope{chain: ask.Chain}).in(ctx)
	s.await(i, ctx, g, c, have, end)
	if leads && (g.loadMany == nil || have > 0) {
		g.launch(ctx, &g.fills, c, func(ctx context.Context, c *call) (found, error) { return g.filling(ctx, c, have) })
		return nil, nil
	}
	if !leads {
		return nil, nil
	}
	return g, c
}

// errPaused is what the holder of a copy is told that wants a newer value before this process tries again.
var errPaused = errors.New("onefill: the last load failed a moment ago")

// paused is how long the holder of a copy has to wait before a failed load is tried again: this process alone paces it for all.
func (g *core) paused(ask *Ask, have uint64) time.Duration {
	if have == 0 || ask.Have == anew || g.fills.Has(ask.Key) { // in this order: a flight notes its failure before it ends
		return 0
	}
	return g.retries.left(ask.Key)
}

// heed does what an ask says beside its question: it brings the news of an invalidation that this process may have missed, and the wish for a value newer
// than one that the asker has, whose number it returns.
func (g *core) heed(ask *Ask) (have uint64) {
	g.mesh.Merge(ask.Floor)
	if ask.Floor > g.cache.Floor(g.account, ask.Key) { // it may be another key's: it counts for this one alone, and vouches for none
		g.fills.DetachBelow(ask.Key, ask.Floor)
		g.cache.Expel(g.cache.Hash(g.account, ask.Key), g.account, ask.Key, ask.Floor)
	}
	if ask.Have == anew {
		g.fills.Detach(ask.Key)
		return g.mesh.Clock()
	}
	return ask.Have
}

// await sends the peer what the fill brings.
func (s *serving) await(i int, ctx context.Context, g *core, c *call, have uint64, end func(Result)) {
	if g.set.softTimeout > 0 && g.staleNow(c.Key()) != nil { // the load goes on when the peer has that
		g.fills.Hold(c)
	}
	ctx, cancel := context.WithCancel(ctx)
	s.mu.Lock()
	if s.cancel == nil {
		s.cancel = make(map[int]context.CancelFunc)
	}
	s.cancel[i] = cancel
	s.mu.Unlock()
	unwatch := c.Watch(func(flights []uint64) { s.waits(i, flights) })
	started := s.m.tasks.Go(func(context.Context) {
		defer cancel()
		defer unwatch()
		f, err := g.softly(ctx, c.Key(), have, func(ctx context.Context) (found, error) {
			f, err := g.fills.Wait(ctx, c, nil)
			if errors.Is(err, flight.ErrAbandoned) { // joined in the moment in which it gave up
				f, err = g.fill(ctx, c.Key(), have)
			}
			return f, err
		})
		end(f.result(err))
		if ctx.Err() == nil {
			s.reply(i, g.outcome(c.Key(), f, err))
		}
	})
	if !started {
		cancel()
		unwatch()
		end(found{}.result(ErrClosed))
		s.reply(i, &Answer{Status: StatusClosed})
	}
}

// outcome is the answer that tells a peer what a fill of key brought.
func (g *core) outcome(key string, f found, err error) *Answer {
	g.stats.served.Add(1)
	switch {
	case err != nil && f.loader:
		a := loaderFailure(err)
		a.Life = max(0, g.retries.left(key))
		return a
	case err != nil:
		return failure(err)
	}
	hash := g.cache.Hash(g.account, f.Key)
	vouched := g.cache.Floor(g.account, f.Key)
	if g.cache.Peek(hash, g.account, f.Key) != f.entry { // not kept, or gone: nothing to vouch for
		vouched = 0
	}
	return g.answer(f.entry, vouched)
}
