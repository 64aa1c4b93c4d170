// Telling all members something: invalidations, and that this process leaves. And the end.

package peers

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

// tellTimeout bounds what one silent member costs an invalidation or a farewell.
const tellTimeout = time.Second

// maxTells bounds the invalidations and farewells to one member that are under way at once; further ones wait. The fetches need connections too.
const maxTells = 8

// Spread implements onefill.Peers. Members that have left are not asked; those that count as dead are tried all the same. A caller that gives up stops nothing:
// what is half done leaves old values behind. It returns within a second.
func (p *Pool) Spread(ctx context.Context, inv *onefill.Invalidation) []onefill.Ack {
	if p.mesh() == nil {
		return nil
	}
	message := wire.AppendInvalidate(nil, inv)
	var links []*link
	for _, l := range p.view.Load().links {
		if l.concerned() {
			links = append(links, l)
		}
	}
	acks := make([]onefill.Ack, len(links))
	p.each(context.WithoutCancel(ctx), links, func(ctx context.Context, i int, l *link) {
		acks[i] = onefill.Ack{Peer: l.id, Err: fmt.Errorf("peers: %s did not acknowledge", l.id)}
		err := l.tell(ctx, message, func(k wire.Kind, f *wire.Fields) error {
			if k != wire.KindAck {
				return nil
			}
			ack, err := f.Ack()
			if err == nil {
				ack.Peer = l.id
				acks[i] = ack
			}
			return err
		})
		if err != nil {
			acks[i] = onefill.Ack{Peer: l.id, Err: fmt.Errorf("peers: %s: %w", l.id, err)}
		}
	})
	return acks
}

// concerned reports whether the member may hold values: not if it has left or is this process itself.
func (l *link) concerned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status != left && !l.mirror
}

// each calls tell for all links at once and waits for all.
func (p *Pool) each(ctx context.Context, links []*link, tell func(context.Context, int, *link)) {
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	var running sync.WaitGroup
	for i, l := range links {
		running.Add(1)
		work := func(context.Context) { defer running.Done(); tell(ctx, i, l) }
		if !p.tasks.Go(work) {
			work(ctx)
		}
	}
	running.Wait()
}

// tell sends frames in a request of their own.
func (l *link) tell(ctx context.Context, frames []byte, take func(wire.Kind, *wire.Fields) error) error {
	select {
	case l.tells <- struct{}{}:
		defer func() { <-l.tells }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b := newBody(l.hello())
	b.b = append(b.b, frames...)
	return l.exchange(ctx, b, take)
}

// Leave implements onefill.Peers.
func (p *Pool) Leave(ctx context.Context) error {
	p.mu.Lock()
	if p.leaving || p.mesh() == nil {
		p.mu.Unlock()
		return nil
	}
	p.leaving = true
	p.rebuild()
	var links []*link
	for _, l := range p.links {
		if l.alive() {
			links = append(links, l)
		}
	}
	p.mu.Unlock()
	errs := make([]error, len(links))
	p.each(ctx, links, func(ctx context.Context, i int, l *link) {
		if err := l.tell(ctx, wire.AppendLeave(nil), l.take); err != nil {
			errs[i] = fmt.Errorf("peers: %s was not told that this process leaves: %w", l.id, err)
		}
	})
	return errors.Join(errs...)
}

// Close implements onefill.Peers. Mesh.Close calls it; a pool that belongs to no mesh may be closed by itself. It ends the goroutines that watch the source
// and the members, the links and the streams, and the servers that Serve started.
func (p *Pool) Close(ctx context.Context) error {
	left := p.Leave(ctx)
	p.sessions.settle(ctx)
	p.mu.Lock()
	servers := p.servers
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	errs := []error{left}
	for _, server := range servers {
		if err := server.Shutdown(ctx); err != nil {
			errs = append(errs, server.Close())
		}
	}
	p.tasks.Stop()
	p.mu.Lock()
	links := slices.AppendSeq(slices.Clone(p.retired), maps.Values(p.links))
	p.mu.Unlock()
	for _, l := range links {
		l.end(onefill.ErrClosed)
	}
	p.sessions.sweep(time.Now().Add(time.Hour))
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	errs = append(errs, p.tasks.Close(last))
	p.transport.CloseIdleConnections()
	return errors.Join(errs...)
}

// TLSConfig is what a server that the pool is mounted on must use where the pool has Secrets or TLS: it makes peers show their certificates. Nil where peers
// speak plain HTTP.
func (p *Pool) TLSConfig() *tls.Config {
	if p.serverTLS == nil {
		return nil
	}
	return p.serverTLS.Clone()
}

// verified reports whether a connection's peer has shown a certificate that this pool accepts. Serve's own listener has verified it in the handshake; another
// server may have verified it against other authorities, or not at all.
func (p *Pool) verified(state *tls.ConnectionState) bool {
	options := x509.VerifyOptions{Roots: p.serverTLS.ClientCAs, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if options.Roots == nil {
		return len(state.VerifiedChains) > 0
	}
	if p.serverTLS.Time != nil {
		options.CurrentTime = p.serverTLS.Time()
	}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err == nil
}

var _ http.Handler = (*Pool)(nil)
var _ onefill.Peers = (*Pool)(nil)
