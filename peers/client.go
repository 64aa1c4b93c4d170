// The asking side: a link to one member, the questions that are open on it, and the standing stream on which slow answers come. How questions share requests
// is in gather.go, what becomes of those that nobody waits for in forget.go, when a member counts as dead in health.go; the HTTP underneath is in http.go.

package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

const (
	// maxConns bounds the connections to one peer.
	maxConns = 64
	// maxAnswer bounds one frame of a peer's answer.
	maxAnswer = 1 << 30
)

// link is the way to one member. It is an onefill.Peer.
type link struct {
	pool     *Pool
	id, url  string
	listedAs uint64 // the incarnation that the source gave, 0 for none
	session  uint64
	template *http.Request // of every request

	mu        sync.Mutex // guards what follows; never held while something is sent
	status    status
	incarn    uint64 // of the process that answered last
	lastID    uint64
	queue     []*question          // not sent yet, in order
	forgets   []uint64             // to be sent with the next request
	open      map[uint64]*question // sent, not answered
	gathering bool                 // a request is on its way that has not been marked
	posts     int
	heard     time.Time // when the peer last said anything
	asked     time.Time // when the oldest request that nothing was heard of since was sent; zero where there is none
	probing   bool
	stream    context.CancelFunc // of the standing stream; nil where there is none
	idle      time.Time          // since when nothing is open
	leftAs    uint64             // the incarnation that has left
	fault     error              // why the member is misconfigured
	mirror    bool               // it is this process under another name
	ended     error
	untold    []*told         // invalidations that wait for a request
	tells     int             // requests with invalidations under way
	ctx       context.Context // of the requests under way; a new one each time that the member comes back
	cancel    context.CancelFunc
}

// question is one ask under way. Whoever takes it out of queue or open answers it.
type question struct {
	id    uint64
	ask   *onefill.Ask
	place int // among the asks of its Fetch
	reply func(int, *onefill.Answer, error)
	left  *sync.WaitGroup
}

func (q *question) answer(a *onefill.Answer, err error) {
	q.reply(q.place, a, err)
	q.left.Done()
}

func newLink(p *Pool, m Peer) *link {
	l := &link{pool: p, id: m.ID, url: m.URL, listedAs: m.Incarnation, session: rand.Uint64() | 1, open: make(map[uint64]*question)}
	l.ctx, l.cancel = context.WithCancel(p.tasks.Context())
	l.template = newTemplate(m.URL)
	return l
}

// hello says who asks.
func (l *link) hello() *wire.Hello {
	h := l.pool.hello()
	h.Session = l.session
	return h
}

// ID implements onefill.Peer.
func (l *link) ID() string { return l.id }

// Fetch implements onefill.Peer. It returns when all asks are answered.
func (l *link) Fetch(ctx context.Context, asks []*onefill.Ask, reply func(int, *onefill.Answer, error)) {
	var left sync.WaitGroup
	left.Add(len(asks))
	questions := make([]question, len(asks))
	l.mu.Lock()
	if err := l.unusable(); err != nil {
		l.mu.Unlock()
		for i := range asks {
			reply(i, nil, err)
		}
		return
	}
	for i, ask := range asks {
		l.lastID++
		q := &questions[i]
		*q = question{id: l.lastID, ask: ask, place: i, reply: reply, left: &left}
		l.queue = append(l.queue, q)
	}
	batch := l.nextBatch()
	l.mu.Unlock()
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() { l.forget(questions, ctx.Err()) })()
	}
	if batch != nil {
		l.post(batch)
	}
	left.Wait()
}

// unusable returns why the link cannot be asked. The caller holds mu.
func (l *link) unusable() error {
	switch {
	case l.ended != nil:
		return l.ended
	case l.status != alive:
		return fmt.Errorf("peers: %s is %s", l.id, l.status)
	}
	return nil
}

// take handles a frame of the peer.
func (l *link) take(k wire.Kind, f *wire.Fields) error {
	switch k {
	case wire.KindAnswer:
		id, a, err := f.Answer()
		if err != nil {
			return err
		}
		if q := l.settle(id); q != nil {
			q.answer(a, nil)
		}
	case wire.KindAlive:
		return f.Alive(func(a wire.Alive) {
			l.mu.Lock()
			q := l.open[a.ID]
			l.mu.Unlock()
			if q != nil && q.ask.Waits != nil {
				q.ask.Waits.SetRemote(a.Waits)
			}
		})
	}
	return nil
}

// settle takes the open question id.
func (l *link) settle(id uint64) *question {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.open[id]
	delete(l.open, id)
	if len(l.open) == 0 {
		l.idle = time.Now()
	}
	return q
}

func (l *link) anyOpen(questions []*question) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range questions {
		if l.open[q.id] == q {
			return true
		}
	}
	return false
}

// listen opens the standing stream, unless there is one.
func (l *link) listen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stream != nil || !l.talks() {
		return
	}
	ctx, cancel := context.WithCancel(l.ctx)
	l.stream = cancel
	if !l.pool.tasks.Go(func(context.Context) { l.hearStream(ctx, cancel) }) {
		cancel()
		l.stream = nil
	}
}

// hearStream takes what comes on the standing stream until that ends.
func (l *link) hearStream(ctx context.Context, cancel context.CancelFunc) {
	began := time.Now()
	body := newBody(l.hello())
	body.b = wire.AppendListen(body.b, l.pool.cfg.PeerSilence/4)
	err := l.exchange(ctx, body, l.take)
	cancelled := ctx.Err() != nil
	cancel()
	l.mu.Lock()
	l.stream = nil
	waiting := len(l.open) > 0 && l.ended == nil
	l.mu.Unlock()
	if !waiting || cancelled {
		return
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	if !l.trouble(err) {
		return
	}
	select { // still there: a proxy that cuts streams, say, or lets none through
	case <-time.After(l.pool.cfg.PeerSilence/4 - time.Since(began)):
		l.listen()
	case <-l.pool.tasks.Context().Done():
	}
}

// trouble is told that a request failed. It asks again, at once and in a request of its own, for all that is open: where the peer lives, answers and signs of
// life come back. It reports whether it does.
func (l *link) trouble(err error) bool {
	var refused *refusal
	if errors.As(err, &refused) {
		l.refused(refused)
		return false
	}
	if l.pool.tasks.Context().Err() != nil {
		l.end(onefill.ErrClosed)
		return false
	}
	return l.poll(err)
}

// poll asks again for all open questions without waiting for their answers; the peer says at once which it works on. It is also the ping: with nothing open
// it asks for a sign of life alone. One poll is under way at a time. It reports whether the peer answered. cause is why it was made.
func (l *link) poll(cause error) bool {
	l.mu.Lock()
	if l.probing || !l.talks() {
		defer l.mu.Unlock()
		return l.talks()
	}
	l.probing = true
	if l.asked.IsZero() {
		l.asked = time.Now()
	}
	body := newBody(l.hello())
	asks := 0
	for id, q := range l.open { // in no order: where there are too many, each has its turn
		if asks++; asks > maxAsks || len(body.b) > maxRequest/2 {
			break
		}
		body.b = wire.AppendAsk(body.b, id, true, q.ask)
	}
	ctx := l.ctx
	l.mu.Unlock()
	err := l.exchange(ctx, body, l.take)
	l.mu.Lock()
	l.probing = false
	l.mu.Unlock()
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		l.refused(refused)
		return false
	case err != nil && l.pool.tasks.Context().Err() != nil:
		return false
	case err != nil:
		l.die(fmt.Errorf("%w, and then: %w", cause, err))
		return false
	}
	return true
}

// end takes the link out of use for good and answers everyone who waits with err.
func (l *link) end(err error) {
	l.mu.Lock()
	if l.ended == nil {
		l.ended = err
	}
	l.mu.Unlock()
	l.drop(err)
	l.pool.transportIdle()
}

// drop ends all requests and answers everyone who waits with err.
func (l *link) drop(err error) {
	l.mu.Lock()
	gone := l.queue
	for _, q := range l.open {
		gone = append(gone, q)
	}
	l.queue, l.forgets = nil, nil
	clear(l.open)
	l.asked = time.Time{}
	l.cancel()
	if l.ended == nil {
		l.ctx, l.cancel = context.WithCancel(l.pool.tasks.Context())
	}
	l.mu.Unlock()
	for _, q := range gone {
		q.answer(nil, err)
	}
}
