// The answering side: the server, and one request of a peer and what it may do. The response is in response.go.

package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

const (
	// maxRequest bounds the bytes of one request; a Set carries its value.
	maxRequest = 64 << 20
	// maxAsks bounds the questions of one request, maxFrames all that it says.
	maxAsks   = 1 << 16
	maxFrames = 2 * maxAsks

	maxHeader         = 16 << 10
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 30 * time.Second
	idleTimeout       = 2 * time.Minute
	maxServerConns    = 10_000
)

// ServeHTTP answers peers. It is to be mounted at Path. A request that does not come from an authenticated peer gets status 403 and not a word more, and any
// other one status 503 before the pool is given to onefill.New.
func (p *Pool) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case !p.authentic(r):
		w.WriteHeader(http.StatusForbidden)
	case p.mesh() == nil:
		w.WriteHeader(http.StatusServiceUnavailable)
	case !strings.HasSuffix(r.URL.Path, "/v1") && r.URL.Path != "v1":
		w.WriteHeader(http.StatusNotFound)
	case r.Method != http.MethodPost || r.Header.Get("Content-Type") != contentType:
		w.WriteHeader(http.StatusBadRequest)
	default:
		p.serve(w, r)
	}
}

// authentic reports whether the request came over a connection on which the peer has shown a certificate that this pool accepts. Without Secrets and TLS
// everyone who can reach the address counts as a peer.
func (p *Pool) authentic(r *http.Request) bool {
	if p.serverTLS == nil {
		return true
	}
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return false
	}
	return r.Context().Value(ownServer{}) == p || p.verified(r.TLS)
}

// ownServer marks, in a connection's context, those that Serve has accepted: their handshake has verified the peer already, which costs too much to be done
// for each request.
type ownServer struct{}

// request is what one request of a peer holds.
type request struct {
	hello       wire.Hello
	asks        []*onefill.Ask
	ids         []uint64
	again       []bool
	forgets     []uint64
	listen      bool
	listenEvery time.Duration
	applied     []byte // acks, in wire format
	leaves      bool
}

var serverReaders = sync.Pool{New: func() any { return wire.NewReader(nil, 0) }}

// serve reads one request and answers it.
func (p *Pool) serve(w http.ResponseWriter, r *http.Request) {
	in := serverReaders.Get().(*wire.Reader)
	in.Reset(io.LimitReader(r.Body, maxRequest), maxRequest)
	req, err := p.read(in)
	in.Reset(nil, 0)
	serverReaders.Put(in)
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		p.respond(w, wire.AppendRefuse(p.greeting(nil), refused.why, refused.text))
		return
	case err != nil:
		p.log.Warn("a malformed request", slog.String("error", err.Error()))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if req.leaves {
		p.depart(&req.hello)
	}
	s := p.sessions.of(p, &req.hello)
	for _, id := range req.forgets {
		s.forget(id)
	}
	if req.listen {
		s.listen(w, r, req.listenEvery)
		return
	}
	p.answer(w, r, s, req)
}

// read decodes a request and applies the invalidations in it.
func (p *Pool) read(in *wire.Reader) (*request, error) {
	req := &request{}
	last := &onefill.Ask{}
	for frames := 0; ; frames++ {
		kind, f, err := in.Next()
		switch first := frames == 0; {
		case errors.Is(err, io.EOF) && !first:
			return req, nil
		case err != nil:
			return nil, err
		case first != (kind == wire.KindHello):
			return nil, fmt.Errorf("%w: hello comes first and once", wire.ErrFormat)
		case frames == maxFrames:
			return nil, fmt.Errorf("%w: more than %d frames", wire.ErrTooLarge, maxFrames)
		}
		switch kind {
		case wire.KindHello:
			if req.hello, err = f.Hello(&wire.Hello{Namespace: p.mesh().Namespace()}); err == nil {
				err = p.admit(&req.hello)
			}
		case wire.KindAsk:
			var id uint64
			var again bool
			if id, again, last, err = f.Ask(last); len(req.asks) == maxAsks {
				err = fmt.Errorf("%w: more than %d asks", wire.ErrTooLarge, maxAsks)
			}
			req.asks, req.ids, req.again = append(req.asks, last), append(req.ids, id), append(req.again, again)
		case wire.KindForget:
			var id uint64
			id, err = f.Forget()
			req.forgets = append(req.forgets, id)
		case wire.KindListen:
			req.listen = true
			req.listenEvery, err = f.Listen()
		case wire.KindInvalidate:
			var inv *onefill.Invalidation
			if inv, err = f.Invalidation(); err == nil {
				ack := p.mesh().Apply(inv)
				ack.Members = p.view.Load().hash
				req.applied = wire.AppendAck(req.applied, &ack)
			}
		case wire.KindLeave:
			req.leaves = true
		}
		if err != nil {
			return nil, err
		}
	}
}

// admit decides whether to listen to who says hello.
func (p *Pool) admit(h *wire.Hello) error {
	switch {
	case h.Namespace != p.mesh().Namespace():
		p.log.Error("a process of another namespace asks", slog.String("peer", h.ID), slog.String("namespace", h.Namespace))
		return &refusal{wire.RefusedNamespace, fmt.Sprintf("%s belongs to namespace %q, not to %q", p.self, p.mesh().Namespace(), h.Namespace)}
	case h.Incarnation == p.incarnation:
		p.log.Error("a request of this process came back to it: it is spelled in two ways", slog.String("self", p.self))
		return &refusal{wire.RefusedSelf, fmt.Sprintf("this process, %q, asks itself under another name: spell it the same in both places", p.self)}
	}
	p.mesh().Merge(h.Clock)
	return nil
}

// depart is told that a peer leaves.
func (p *Pool) depart(h *wire.Hello) {
	if l := p.view.Load().links[h.ID]; l != nil {
		l.depart(h.Incarnation)
	}
}

// hello says who this process is.
func (p *Pool) hello() *wire.Hello {
	return &wire.Hello{Namespace: p.mesh().Namespace(), ID: p.self, Incarnation: p.incarnation, Clock: p.mesh().Clock(), Members: p.view.Load().hash}
}

// greeting begins a response.
func (p *Pool) greeting(b []byte) []byte { return wire.AppendHello(wire.Begin(b), p.hello()) }

// Serve answers peers on a listener of the pool's own, with every bound set: sizes and times of headers and bodies, idle times, the number of connections. It
// returns http.ErrServerClosed after Close.
func (p *Pool) Serve(listener net.Listener) error {
	server := &http.Server{
		Handler: p.mux(), MaxHeaderBytes: maxHeader, ReadHeaderTimeout: readHeaderTimeout, ReadTimeout: readTimeout, IdleTimeout: idleTimeout,
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, ownServer{}, p) },
		ErrorLog:    slog.NewLogLogger(connectionLog{p}, slog.LevelDebug),
	}
	if p.serverTLS != nil {
		server.TLSConfig = p.serverTLS.Clone()
	}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return http.ErrServerClosed
	}
	p.servers = append(p.servers, server)
	p.mu.Unlock()
	listener = netutil.LimitListener(listener, maxServerConns)
	if p.serverTLS != nil {
		return server.ServeTLS(listener, "", "")
	}
	return server.Serve(listener)
}

func (p *Pool) mux() http.Handler {
	mux := http.NewServeMux()
	mux.Handle(Path, p)
	return mux
}

// ListenAndServe listens at the port of this process's URL and calls Serve.
func (p *Pool) ListenAndServe() error {
	if p.url == "" {
		return errors.New("peers: a guest without a URL has nowhere to listen")
	}
	host, port := hostPort(p.url)
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("peers: %w", err)
	}
	return p.Serve(listener)
}

// connectionLog is a slog.Handler that takes what net/http logs about single connections: a line a second, like every failure of the background.
type connectionLog struct{ p *Pool }

func (c connectionLog) Enabled(context.Context, slog.Level) bool { return true }
func (c connectionLog) Handle(_ context.Context, r slog.Record) error {
	c.p.log.Warn("a connection failed", slog.String("error", r.Message))
	return nil
}
func (c connectionLog) WithAttrs([]slog.Attr) slog.Handler { return c }
func (c connectionLog) WithGroup(string) slog.Handler      { return c }
