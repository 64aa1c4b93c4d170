// Sessions: what one peer's link is waiting for. Answers that were not ready in time go to the session's standing stream; until they are old they can be asked
// for again, so that a response that got lost costs a question and never a second load.

package peers

import (
	"context"
	"net/http"
	"sync"
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
	idle chan struct{} // told when a session has answered everything; has room for one
	mu   sync.Mutex    // guards m; taken before a session's
	m    map[sessionKey]*session
}

type sessionKey struct {
	id      string
	session uint64
}

// session is one link of one peer to this process.
type session struct {
	p *Pool

	mu      sync.Mutex // guards what follows
	pending map[uint64]*pending
	running int // pending without an answer
	heard   time.Time
	stream  chan struct{} // closed to end the stream; nil where none listens
	wake    chan struct{} // the stream has something to send
	out     []byte        // frames for the stream
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
	key := sessionKey{h.ID, h.Session}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.m[key]
	if s == nil {
		s = &session{p: p, pending: make(map[uint64]*pending), wake: make(chan struct{}, 1)}
		if ss.m == nil {
			ss.m = make(map[sessionKey]*session)
		}
		if len(ss.m) < maxSessions { // else it lives as long as the request
			ss.m[key] = s
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
	for key, s := range ss.m {
		if s.sweep(now) {
			delete(ss.m, key)
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
	for _, s := range ss.m {
		if s.room(0) < 0 {
			return true
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

// room is how many more asks the session may have under way.
func (s *session) room(most int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return most - s.running
}

// add notes an ask that is being worked on.
func (s *session) add(id uint64, waits []uint64, leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if twice := s.pending[id]; twice != nil && twice.answer == nil { // the peer's transport has repeated the request on another connection
		s.running--
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
	if s.settle(id, a) && s.stream != nil { // a stream that comes later begins with what is answered
		s.out = wire.AppendAnswer(s.out, id, a)
		s.signal()
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
	if s.running--; s.running > 0 {
		return
	}
	select {
	case s.p.sessions.idle <- struct{}{}:
	default:
	}
}

// signal wakes the stream. The caller holds mu.
func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
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
	if s.stream != nil {
		s.out = wire.AppendAlive(s.out, []wire.Alive{{ID: id, Waits: flights}})
		s.signal()
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

// alive appends a sign of life for everything that is being worked on, even for nothing.
func (s *session) alive(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]wire.Alive, 0, s.running)
	for id, ask := range s.pending {
		if ask.answer == nil {
			all = append(all, wire.Alive{ID: id, Waits: ask.waits})
		}
	}
	return wire.AppendAlive(b, all)
}

// take returns what the stream is to send. What the last call returned is used again.
func (s *session) take(last []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.out
	s.out = last[:0]
	return out
}

// listen sends answers and signs of life on the response until the peer hangs up, another stream takes over, or the pool closes.
func (s *session) listen(w http.ResponseWriter, r *http.Request, every time.Duration) {
	mine := make(chan struct{})
	s.mu.Lock()
	if s.stream != nil {
		close(s.stream)
	}
	s.stream = mine
	s.out = s.answered(s.out[:0])
	s.mu.Unlock()
	defer s.hangUp(mine)
	flusher := http.NewResponseController(w)
	_ = flusher.SetWriteDeadline(time.Time{}) // a stream lives long; ErrNotSupported is fine
	_ = flusher.SetReadDeadline(time.Time{})
	w.Header()["Content-Type"] = contentTypeHeader
	ticker := time.NewTicker(max(every, 10*time.Millisecond))
	defer ticker.Stop()
	b := s.alive(append(s.p.greeting(nil), s.take(nil)...))
	for {
		if _, err := w.Write(b); err != nil || flusher.Flush() != nil {
			return
		}
		select {
		case <-s.wake:
			b = s.take(b)
		case <-ticker.C:
			b = s.alive(s.take(b))
		case <-mine:
			return
		case <-r.Context().Done():
			return
		case <-s.p.closing: // with what has been answered on the way out
			_, _ = w.Write(s.take(b))
			return
		}
	}
}

// answered appends the answers that are kept. The caller holds mu.
func (s *session) answered(b []byte) []byte {
	for id, ask := range s.pending {
		if ask.answer != nil {
			b = wire.AppendAnswer(b, id, ask.answer)
		}
	}
	return b
}

func (s *session) hangUp(mine chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if s.stream == mine {
		s.stream = nil
	}
}
