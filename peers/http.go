// HTTP underneath the asking side: one request and its response, frame by frame. Only an answer in onefill's own format is a peer's word; whatever else comes
// back is an unreachable peer.

package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/wire"
)

// contentType marks onefill's own messages.
const contentType = "application/x-onefill"

// endpoint is the path of version 1.
const endpoint = Path + "v1"

// newTransport returns the transport of a pool. Peers speak HTTP/1.1: measured on loopback it costs two thirds of what HTTP/2 does, since gathering leaves
// little to multiplex. No proxy is used, whatever the environment says.
func newTransport(dial func(context.Context, string, string) (net.Conn, error), client *tls.Config) *http.Transport {
	if dial == nil {
		dial = (&net.Dialer{Timeout: 2 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	t := &http.Transport{
		DialContext: dial, DisableCompression: true, MaxConnsPerHost: maxConns, MaxIdleConns: 0, MaxIdleConnsPerHost: maxConns,
		IdleConnTimeout: 90 * time.Second, WriteBufferSize: 16 << 10, ReadBufferSize: 16 << 10, MaxResponseHeaderBytes: 16 << 10,
	}
	if client != nil {
		client = client.Clone()
		client.NextProtos = []string{"http/1.1"}
		t.DialTLSContext = tlsDialer(dial, client)
	}
	return t
}

func (p *Pool) transportIdle() { p.transport.CloseIdleConnections() }

// body is a request's bytes, reused from request to request.
type body struct {
	b  []byte
	at int
}

var bodies = sync.Pool{New: func() any { return new(body) }}

func newBody(h *wire.Hello) *body {
	b := bodies.Get().(*body)
	b.b = wire.AppendHello(wire.Begin(b.b[:0]), h)
	return b
}

// bytesBody reads a body. It keeps no reference that outlives the exchange: the transport may still read after the response has come.
type bytesBody struct {
	mu sync.Mutex // guards b: it is taken away when the exchange ends
	b  []byte
}

func (r *bytesBody) Read(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}

func (r *bytesBody) Close() error { return nil }

func (r *bytesBody) release() {
	r.mu.Lock()
	r.b = nil
	r.mu.Unlock()
}

var readers = sync.Pool{New: func() any { return wire.NewReader(nil, 0) }}

// refusal is the word of a peer that does not look at this process's requests.
type refusal struct {
	why  wire.Refusal
	text string
}

func (r *refusal) Error() string { return "peers: refused: " + r.text }

// exchange sends one request and gives each frame of the response to take. It returns nil once the response has ended as it should. The idempotency key
// lets the transport repeat a request on a fresh connection where an idle one turns out to be dead: asking twice does no harm, as asks have IDs.
func (l *link) exchange(ctx context.Context, b *body, take func(wire.Kind, *wire.Fields) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	content := &bytesBody{b: b.b}
	defer func() { content.release(); bodies.Put(b) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url+endpoint, content)
	if err != nil {
		return err
	}
	whole := b.b
	req.ContentLength = int64(len(whole))
	req.GetBody = func() (io.ReadCloser, error) { return &bytesBody{b: append([]byte(nil), whole...)}, nil }
	req.Header = http.Header{"Content-Type": {contentType}, "User-Agent": {""}, "Idempotency-Key": nil}
	if !l.track(req, cancel) {
		return errEnded
	}
	defer l.untrack(req)
	resp, err := l.pool.transport.RoundTrip(req)
	if err != nil {
		return explainTLS(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != contentType {
		return fmt.Errorf("peers: %s answers with status %d and content type %q: not onefill", l.id, resp.StatusCode, resp.Header.Get("Content-Type"))
	}
	r := readers.Get().(*wire.Reader)
	defer readers.Put(r)
	r.Reset(resp.Body, maxAnswer)
	return l.readFrames(r, take)
}

var errEnded = errors.New("peers: the link has ended")

func (l *link) readFrames(r *wire.Reader, take func(wire.Kind, *wire.Fields) error) error {
	for {
		kind, f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		switch kind {
		case wire.KindHello:
			h, err := f.Hello(&wire.Hello{})
			if err != nil {
				return err
			}
			if err := l.greet(&h); err != nil {
				return err
			}
		case wire.KindRefuse:
			why, text, err := f.Refuse()
			if err != nil {
				return err
			}
			return &refusal{why, text}
		default:
			l.hear()
			if err := take(kind, f); err != nil {
				return err
			}
		}
	}
}

// track notes a request under way, so that drop can end it.
func (l *link) track(req *http.Request, cancel context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return false
	}
	l.cancels[req] = cancel
	return true
}

func (l *link) untrack(req *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.cancels, req)
}
