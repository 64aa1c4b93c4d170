// Gathering: how questions to one member share requests. Whoever asks while no request is on its way sends at once, in his own goroutine; who asks meanwhile
// waits in the queue and travels with the next request. So one caller pays for nothing, and many callers share. A request ends, for this purpose, when the
// peer marks that it has answered all that it can answer at once; slow keys hold nobody up. What becomes of the answers is in client.go.

package peers

import (
	"context"
	"runtime"
	"time"

	"github.com/onefill/onefill/internal/wire"
)

const (
	// maxPosts bounds the requests to one peer that are under way at once, so that with the standing stream, pings and invalidations the connections stay
	// below maxConns.
	maxPosts = 32
	// maxGather bounds the bytes of one request's questions; what is more goes with the next one.
	maxGather = 256 << 10
)

// batch is what one request carries.
type batch struct {
	questions []*question
	forgets   []uint64
	ctx       context.Context
	marked    bool // the next batch may go
}

// nextBatch takes what is to be sent now, nil if nothing is or if it has to wait for the request on its way. The caller holds mu.
func (l *link) nextBatch() *batch {
	if l.gathering || l.posts >= maxPosts || len(l.queue) == 0 {
		return nil
	}
	size, n := 0, 0
	for n < len(l.queue) && size < maxGather {
		size += len(l.queue[n].ask.Key) + 64
		n++
	}
	b := &batch{questions: l.queue[:n:n], forgets: l.forgets, ctx: l.ctx}
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	l.forgets = nil
	for _, q := range b.questions {
		l.open[q.id] = q
	}
	if l.asked.IsZero() {
		l.asked = time.Now()
	}
	l.gathering = true
	l.posts++
	return b
}

// post sends a batch and takes the answers that come with the response.
func (l *link) post(b *batch) {
	body := newBody(l.hello())
	for _, id := range b.forgets {
		body.b = wire.AppendForget(body.b, id)
	}
	for _, q := range b.questions {
		body.b = wire.AppendAsk(body.b, q.id, false, q.ask)
	}
	err := l.exchange(b.ctx, body, func(k wire.Kind, f *wire.Fields) error {
		if k == wire.KindMark {
			l.mark(b, false)
			return nil
		}
		return l.take(k, f)
	})
	l.mark(b, true)
	if err != nil && !l.trouble(err) {
		return
	}
	if l.anyOpen(b.questions) {
		l.listen()
	}
}

// mark lets the next batch go, once for each batch; at its end the batch gives back its place among the posts. Where others wait already, or were answered
// together and will ask again, a task sends the next batch once all of them had their turn: otherwise the first one would leave with a question of its own.
func (l *link) mark(b *batch, ended bool) {
	l.mu.Lock()
	if ended {
		l.posts--
	}
	next := !l.gathering && len(l.queue) > 0 // a place among the posts was missing
	if !b.marked {
		b.marked = true
		next = len(l.queue) > 0 || len(b.questions) > 1
		l.gathering = next
	}
	l.mu.Unlock()
	if next {
		l.pool.tasks.Go(func(context.Context) {
			runtime.Gosched()
			l.mu.Lock()
			l.gathering = false
			b := l.nextBatch()
			l.mu.Unlock()
			if b != nil {
				l.post(b)
			}
		})
	}
}
