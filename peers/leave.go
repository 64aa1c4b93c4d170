// Leaving: what is said to the members, and the end of everything that the pool started. And who may say so: TLS as a server sees it.

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
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	errs := make([]error, len(links))
	var running sync.WaitGroup
	for i, l := range links {
		running.Add(1)
		farewell := func(context.Context) {
			defer running.Done()
			if err := l.exchange(ctx, l.farewell(), l.take); err != nil {
				errs[i] = fmt.Errorf("peers: %s was not told that this process leaves: %w", l.id, err)
			}
		}
		if !p.tasks.Go(farewell) {
			farewell(ctx)
		}
	}
	running.Wait()
	return errors.Join(errs...)
}

func (l *link) farewell() *body {
	b := newBody(l.hello())
	b.b = wire.AppendLeave(b.b)
	return b
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
