// The standing stream of a session: the response on which answers that were not ready in time go out as they come, with signs of life for what is still being
// worked on. What the answers are is in session.go; the end that hears them is in client.go.

package peers

import (
	"net/http"
	"time"

	"github.com/onefill/onefill/internal/wire"
)

const (
	// streamWrite is how long the peer may take to read what one write sends. What it has not read by then it can ask for again.
	streamWrite = 30 * time.Second
	// maxBehind bounds the bytes that wait for a peer that reads slowly; the frame that goes beyond is still taken, so that one of any size gets through.
	maxBehind = 64 << 20
	// keepStreamBuffer is the largest buffer that a stream keeps for what comes next.
	keepStreamBuffer = 1 << 20
)

// stream is a response that stays open.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	every   time.Duration // between signs of life
	over    chan struct{} // closed to end it
	wake    chan struct{} // told when there is something in out; has room for one
	out     []byte        // frames to be sent; guarded by the session's mu
}

// listen sends answers and signs of life on the response until the peer hangs up or stops reading, another stream takes over, or the pool closes.
func (s *session) listen(w http.ResponseWriter, r *http.Request, every time.Duration) {
	mine := &stream{
		w: w, control: http.NewResponseController(w), every: max(every, 10*time.Millisecond), over: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	_ = mine.control.SetReadDeadline(time.Time{}) // a stream lives long; ErrNotSupported is fine
	w.Header()["Content-Type"] = contentTypeHeader
	s.mu.Lock()
	s.cut()
	s.stream = mine
	mine.out = s.answered(s.p.greeting(nil))
	s.mu.Unlock()
	defer s.hangUp(mine)
	ticker := time.NewTicker(mine.every)
	defer ticker.Stop()
	b := s.alive(s.take(mine, nil))
	for s.send(mine, b) {
		select {
		case <-mine.wake:
			b = s.take(mine, b)
		case <-ticker.C:
			b = s.alive(s.take(mine, b))
		case <-mine.over:
			return
		case <-r.Context().Done():
			return
		case <-s.p.closing: // with what has been answered on the way out
			s.send(mine, s.take(mine, b))
			return
		}
	}
}

// send writes b on the stream and reports whether it could.
func (s *session) send(mine *stream, b []byte) bool {
	s.mu.Lock()
	uncut := s.stream == mine
	if uncut {
		_ = mine.control.SetWriteDeadline(time.Now().Add(streamWrite + mine.every)) // until the next one: HTTP/2 ends streams also between writes
	}
	s.mu.Unlock()
	if !uncut {
		return false
	}
	_, err := mine.w.Write(b)
	return err == nil && mine.control.Flush() == nil
}

// listening returns the stream that takes frames, nil where there is none. It cuts one that is too far behind. The caller holds mu.
func (s *session) listening() *stream {
	if s.stream != nil && len(s.stream.out) >= maxBehind {
		s.cut()
	}
	return s.stream
}

// cut ends the stream, if there is one, also in the middle of a write that the peer does not read. The caller holds mu.
func (s *session) cut() {
	if s.stream == nil {
		return
	}
	close(s.stream.over)
	_ = s.stream.control.SetWriteDeadline(time.Unix(1, 0))
	s.stream = nil
}

// hangUp notes that a stream has ended. Nobody touches its response any more.
func (s *session) hangUp(mine *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
	if s.stream == mine {
		s.stream = nil
	}
}

// signal says that there is something to send. The caller holds the session's mu.
func (t *stream) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// take returns what the stream is to send. What the last call returned is used again.
func (s *session) take(mine *stream, last []byte) []byte {
	if cap(last) > keepStreamBuffer {
		last = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := mine.out
	mine.out = last[:0]
	return out
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
