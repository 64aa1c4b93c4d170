// The response to one request of a peer: what can be answered at once, then what is ready soon. Answers that are not ready in time belong to the peer's session,
// see session.go.

package peers

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

// holdResponse is how long a response waits for answers before those that are not ready move to the standing stream.
const holdResponse = 20 * time.Millisecond

// respond sends a whole response.
func (p *Pool) respond(w http.ResponseWriter, b []byte) {
	h := w.Header()
	h["Content-Type"] = contentTypeHeader
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	_, _ = w.Write(b) // the peer sees a broken response and asks again
}

var contentTypeHeader = []string{contentType}

// response collects the answers to one request.
type response struct {
	p *Pool
	s *session

	mu       sync.Mutex // guards what follows
	b        []byte
	left     int
	answered []bool
	moved    bool             // answers go to the session from now on
	noted    bool             // the session knows the asks that are left
	early    map[int][]uint64 // what their fills wait for, from before
	waiting  bool             // the handler waits for ready
	ready    chan struct{}
}

// answer answers what a request asks: what can be answered at once, then what is ready within holdResponse; the rest moves to the standing stream.
func (p *Pool) answer(w http.ResponseWriter, r *http.Request, s *session, req *request) {
	buf := bodies.Get().(*body)
	defer bodies.Put(buf)
	res := &response{p: p, s: s, b: append(p.greeting(buf.b[:0]), req.applied...)}
	defer func() { buf.b = res.b[:0] }()
	asks, ids := res.known(req)
	if len(asks) == 0 {
		p.respond(w, res.b)
		return
	}
	res.left, res.answered = len(asks), make([]bool, len(asks))
	leave := p.mesh().Serve(req.hello.ID, asks, func(i int, a *onefill.Answer) { res.reply(i, ids[i], a) },
		func(i int, flights []uint64) { res.waits(i, ids[i], flights) })
	res.mu.Lock()
	s.asker.release(len(asks) - res.left)
	if res.left == 0 {
		res.mu.Unlock()
		p.respond(w, res.b)
		return
	}
	for i, id := range ids {
		if !res.answered[i] {
			s.add(id, res.early[i], func() { leave(i) })
		}
	}
	res.noted = true
	res.b = wire.AppendMark(res.b)
	res.ready, res.waiting = make(chan struct{}, 1), true
	res.mu.Unlock()
	res.hold(w, r)
}

// known answers the asks that the session works on already, and those for which the peer has no room, and returns the others. Their room is reserved.
func (res *response) known(req *request) (asks []*onefill.Ask, ids []uint64) {
	asks, ids = req.asks[:0], req.ids[:0]
	for i, ask := range req.asks {
		id := req.ids[i]
		if req.again[i] {
			if frame, ok := res.s.progress(res.b, id); ok {
				res.b = frame
				continue
			}
		}
		asks, ids = append(asks, ask), append(ids, id)
	}
	room := res.s.asker.reserve(len(asks), res.p.cfg.MaxPending)
	for _, id := range ids[room:] {
		res.b = wire.AppendAnswer(res.b, id, &onefill.Answer{Status: onefill.StatusBusy})
	}
	return asks[:room], ids[:room]
}

// reply takes the answer to ask i of the request.
func (res *response) reply(i int, id uint64, a *onefill.Answer) {
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.moved {
		res.s.deliver(id, a)
		return
	}
	res.b = wire.AppendAnswer(res.b, id, a)
	res.answered[i] = true
	res.left--
	if res.waiting {
		res.s.keep(id, a) // the response may get lost
		select {
		case res.ready <- struct{}{}:
		default:
		}
	}
}

// waits takes what the fill of ask i waits for.
func (res *response) waits(i int, id uint64, flights []uint64) {
	res.mu.Lock()
	defer res.mu.Unlock()
	if res.noted {
		res.s.waits(id, flights)
		return
	}
	if res.early == nil {
		res.early = make(map[int][]uint64)
	}
	res.early[i] = flights
}

// hold sends what there is, then answers as they come, until all are there or holdResponse is over.
func (res *response) hold(w http.ResponseWriter, r *http.Request) {
	w.Header()["Content-Type"] = contentTypeHeader
	flusher := http.NewResponseController(w)
	over := time.NewTimer(holdResponse)
	defer over.Stop()
	var out []byte
	for ended := false; ; {
		res.mu.Lock()
		out = append(out[:0], res.b...)
		res.b = res.b[:0]
		ended = ended || res.left == 0
		res.moved = res.moved || ended
		res.mu.Unlock()
		_, err := w.Write(out)
		if ended || err != nil {
			break
		}
		if flusher.Flush() != nil {
			break
		}
		select {
		case <-res.ready:
		case <-over.C:
			ended = true
		case <-r.Context().Done():
			ended = true
		case <-res.p.closing:
			ended = true
		}
	}
	res.mu.Lock()
	res.moved = true
	res.mu.Unlock()
}
