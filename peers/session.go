// Sessions: what one peer's link is waiting for. Answers that were not ready in time go to the session's standing stream, see stream.go; until they are old they
// can be asked for again, so that a response that got lost costs a question and never a second load.

package peers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

const (
	// keepAnswer is how long an answer can be asked for again.
	keepAnswer = 10 * time.Second
	// keepSession is how long a session lives of which nothing is heard and that no stream listens to.
	keepSession = 15 * time.Second
	// maxSessions bounds the sessions of a pool.
	maxSessions = 1 << 14
)

// sessions holds a pool's sessions.
type sessions struct {
	idle   chan struct{}     // told when a session has answered everything; has room for one
	mu     sync.Mutex        // guards what follows; taken before a session's
	askers map[string]*asker // by the peer's ID
	n      int               // sessions of all of them
}

// asker is a peer that asks. It may have any number of sessions: the peer chooses their numbers, so what it may ask is bounded here.
type asker struct {
	sessions map[uint64]*session // guarded by the pool's sessions.mu
	pending  atomic.Int64        // asks that are being worked on, or have room reserved
}

// reserve takes room for up to n asks, where most are allowed in all, and returns for how many there was.
func (a *asker) reserve(n, most int) int {
	for {
		pending := a.pending.Load()
		got := min(int64(n), max(int64(most)-pending, 0))
		if a.pending.CompareAndSwap(pending, pending+got) {
			return int(got)
		}
	}
}

// release gives the room of n asks back.
func (a *asker) release(n int) { a.pending.Add(-int64(n)) }

// session is one link of one peer to this process.
type session struct {
	p     *Pool
	asker *asker

	mu      sync.Mutex // guards what follows
	pending map[uint64]*pending
	running int // pending without an answer
	heard   time.Time
	stream  *stream // nil where none listens
}

// pending is one ask that was not answered at once.
type pending struct {
	leave  func()
	answer *onefill.Answer // nil while it is being worked on
	since  time.Time       // of the answer
	waits  []uint64
}

// of returns the session that h belongs to.
func (ss *sessions) of(p *Pool, h *wire.Hello) *session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	a := ss.askers[h.ID]
	if a == nil {
		a = &asker{sessions: make(map[uint64]*session)}
	}
	s := a.sessions[h.Session]
	if s == nil {
		s = &session{p: p, asker: a, pending: make(map[uint64]*pending)}
		if ss.n < maxSessions { // else it lives as long as the request
			if ss.askers == nil {
				ss.askers = make(map[string]*asker)
			}
			ss.askers[h.ID], a.sessions[h.Session] = a, s
			ss.n++
		}
	}
	s.mu.Lock()
	s.heard = time.Now()
	s.mu.Unlock()
	return s
}

// sweep drops old answers and dead sessions.
func (ss *sessions) sweep(now time.Time) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for id, a := range ss.askers {
		for n, s := range a.sessions {
			if s.sweep(now) {
				delete(a.sessions, n)
				ss.n--
			}
		}
		if len(a.sessions) == 0 {
			delete(ss.askers, id)
		}
	}
}

// settle waits until everything that is being worked on is answered, or ctx ends.
func (ss *sessions) settle(ctx context.Context) {
	for ss.busy() {
		select {
		case <-ss.idle:
		case <-ctx.Done():
			return
		}
	}
}

func (ss *sessions) busy() bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	for _, a := range ss.askers {
		for _, s := range a.sessions {
			if s.working() {
				return true
			}
		}
	}
	return false
}

func (s *session) sweep(now time.Time) (dead bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	dead = s.stream == nil && now.Sub(s.heard) > keepSession
	for id, a := range s.pending {
		switch {
		case a.answer != nil && now.Sub(a.since) > keepAnswer:
			delete(s.pending, id)
		case dead && a.answer == nil:
			delete(s.pending, id)
			s.done()
			a.leave()
		}
	}
	return dead
}

func (s *session) working() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running > 0
}

// add notes an ask that is being worked on, with the room that was reserved for it.
func (s *session) add(id uint64, waits []uint64, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if twice := s.pending[id]; twice != nil && twice.answer == nil { // the peer's transport has repeated the request on another connection
		s.done()
		twice.leave()
	}
	s.pending[id] = &pending{leave: leave, waits: waits}
	s.running++
}

// keep notes an answer that was sent with a response.
func (s *session) keep(id uint64, a *onefill.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle(id, a)
}

// deliver hands an answer to the stream.
func (s *session) deliver(id uint64, a *onefill.Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.settle(id, a) {
		return
	}
	if to := s.listening(); to != nil { // a stream that comes later begins with what is answered
		to.out = wire.AppendAnswer(to.out, id, a)
		to.signal()
	}
}

func (s *session) settle(id uint64, a *onefill.Answer) bool {
	ask := s.pending[id]
	if ask == nil || ask.answer != nil {
		return false
	}
	ask.answer, ask.since = a, time.Now()
	s.done()
	return true
}

// done notes that one ask less is being worked on. The caller holds mu.
func (s *session) done() {
	s.asker.release(1)
	if s.running--; s.running > 0 {
		return
	}
	select {
	case s.p.sessions.idle <- struct{}{}:
	default:
	}
}

// waits notes the flights that an ask's fill waits for and tells the peer at once.
func (s *session) waits(id uint64, flights []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ask := s.pending[id]
	if ask == nil || ask.answer != nil {
		return
	}
	ask.waits = flights
	if to := s.listening(); to != nil {
		to.out = wire.AppendAlive(to.out, []wire.Alive{{ID: id, Waits: flights}})
		to.signal()
	}
}

// forget ends the work on an ask, as far as this peer is concerned.
func (s *session) forget(id uint64) {
	s.mu.Lock()
	ask := s.pending[id]
	delete(s.pending, id)
	working := ask != nil && ask.answer == nil
	if working {
		s.done()
	}
	s.mu.Unlock()
	if working {
		ask.leave()
	}
}

// progress appends what is known of an ask that is asked again, and reports whether anything is.
func (s *session) progress(b []byte, id uint64) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ask := s.pending[id]
	switch {
	case ask == nil:
		return b, false
	case ask.answer != nil:
		return wire.AppendAnswer(b, id, ask.answer), true
	}
	return wire.AppendAlive(b, []wire.Alive{{ID: id, Waits: ask.waits}}), true
}
