// HTTP underneath the asking side: one request and its response, frame by frame. Only an answer in onefill's own format is a peer's word; whatever else comes
// back is an unreachable peer.

package peers

import (
	"bytes"
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
	b []byte
}

var bodies = sync.Pool{New: func() any { return new(body) }}

func newBody(h *wire.Hello) *body {
	b := bodies.Get().(*body)
	b.b = wire.AppendHello(wire.Begin(b.b[:0]), h)
	return b
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(l.pool.cfg.PeerSilence, func() { cancel(errStalled) })
	defer idle.Stop()
	req := l.template.WithContext(ctx)
	whole := b.b
	content := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole)), nil } // these types let net/http send header and body in one packet
	req.Body, _ = content()
	req.ContentLength, req.GetBody = int64(len(whole)), content
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
	r.Reset(&moving{resp.Body, l, idle}, maxAnswer)
	if err := l.readFrames(r, take); err != nil {
		return err
	}
	bodies.Put(b) // only now is it certain that the transport reads it no more
	return nil
}

// errStalled ends an exchange of which nothing has moved for PeerSilence: the peer may live and only the connection be lost, in a router that forgot it, say.
var errStalled = errors.New("peers: nothing comes on the connection")

// moving is a response's body. Whatever comes of it is a sign of life, a large value's part as well.
type moving struct {
	in   io.Reader
	l    *link
	idle *time.Timer
}

func (m *moving) Read(p []byte) (int, error) {
	n, err := m.in.Read(p)
	if n > 0 {
		m.idle.Reset(m.l.pool.cfg.PeerSilence)
		m.l.hear()
	}
	return n, err
}

// newTemplate returns the request that all requests to a member are copies of. Its URL is a member's and has been parsed before.
func newTemplate(member string) *http.Request {
	req, err := http.NewRequest(http.MethodPost, member+endpoint, nil)
	if err != nil {
		panic("peers: a normalised URL does not parse: " + err.Error())
	}
	req.Header = http.Header{"Content-Type": contentTypeHeader, "User-Agent": {""}, "Idempotency-Key": nil}
	return req
}

func (l *link) readFrames(r *wire.Reader, take func(wire.Kind, *wire.Fields) error) error {
	for first := true; ; first = false {
		kind, f, err := r.Next()
		switch {
		case errors.Is(err, io.EOF) && !first:
			return nil
		case err != nil:
			return err
		case first != (kind == wire.KindHello):
			return fmt.Errorf("%w: hello comes first and once", wire.ErrFormat)
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
			if err := take(kind, f); err != nil {
				return err
			}
		}
	}
}
