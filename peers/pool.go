// Pool: this process's membership among others. Who owns a key is in view.go, how the pool asks the others in client.go, how it answers them in server.go, how
// it knows who is alive in health.go.

package peers

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/report"
	"github.com/onefill/onefill/internal/tasks"
)

// Path is where a Pool listens: mount it there, or let Serve do so.
const Path = "/_onefill/"

// DefaultPeerSilence is after what silence a peer counts as dead.
const DefaultPeerSilence = 2 * time.Second

// Config says how a pool speaks.
type Config struct {
	// ID ranks this process among the members; all must know it by the same one. Empty means its normalised URL. Sources that know only addresses
	// (Static, DNS) allow no other.
	ID string
	// Secrets make peers speak TLS 1.3 with certificates derived from the first of them, and accept those derived from any. Each has at least 16 bytes, at
	// random. All processes of a pool have one in common.
	Secrets []string
	// TLS makes peers speak TLS with certificates of your own, each verifying the other's name. Not together with Secrets.
	TLS *tls.Config
	// Insecure allows a pool without Secrets and TLS on an address that is not loopback: where the network itself encrypts and authenticates.
	Insecure bool
	// Guest makes this process one that asks and owns nothing. It need not serve.
	Guest bool
	// PeerSilence is how long after a request a peer may be silent before it counts as dead. A peer that is working on an answer is not silent. Zero means
	// 2 seconds; less than 50 milliseconds is an error. It should be the same in all processes.
	PeerSilence time.Duration
	// MaxPending bounds the questions of one peer, told by its ID, that this process works on at once; further ones are told that it is busy. Zero means
	// 16,384; negative is an error.
	MaxPending int
	// Dial connects to peers. Nil means the net package's dialler. HTTP_PROXY is not heeded.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Logger gets a line for each kind of failure, at most once a second. Nil means slog.Default().
	Logger *slog.Logger
}

// Pool is this process's membership in a pool of processes that speak HTTP. It is an onefill.Peers, and an http.Handler to mount at Path where Serve is not
// used: then the server around it must set its own timeouts and bounds for headers, and its TLS must be TLSConfig's. Its methods are safe for concurrent use.
type Pool struct {
	self        string // ID
	url         string // normalised, empty for a guest without one
	scheme      string
	cfg         Config
	source      Source
	incarnation uint64
	serverTLS   *tls.Config // nil for plain HTTP
	transport   *http.Transport
	log         *report.Log
	tasks       *tasks.Set
	joined      atomic.Pointer[onefill.Member] // nil before Join

	view  atomic.Pointer[view]
	known chan struct{} // closed when the first set of members is known

	mu      sync.Mutex // guards what follows and the writing of view
	links   map[string]*link
	retired []*link // to former members, as long as something is open on them
	listed  bool    // the source names this process
	isKnown bool
	leaving bool
	servers []*http.Server

	sessions sessions
	closing  chan struct{} // closed when requests are to end
	closed   bool
}

// NewPool returns the pool that src describes, with this process in it at the URL self, such as "https://10.0.0.3:7946"; a guest may pass "". Errors name the
// argument or the field and its value. The pool asks nobody, watches nothing and starts no goroutine before it is given to onefill.New; until then ServeHTTP and
// Serve answer with status 503.
func NewPool(self string, src Source, cfg Config) (*Pool, error) {
	if cfg.PeerSilence == 0 {
		cfg.PeerSilence = DefaultPeerSilence
	}
	if cfg.MaxPending == 0 {
		cfg.MaxPending = 1 << 14
	}
	p := &Pool{
		cfg: cfg, log: report.New(cfg.Logger), tasks: tasks.New(), incarnation: rand.Uint64() | 1, scheme: "http",
		links: make(map[string]*link), known: make(chan struct{}), closing: make(chan struct{}), sessions: sessions{idle: make(chan struct{}, 1)},
	}
	if err := p.check(self); err != nil {
		return nil, err
	}
	if err := p.secure(); err != nil {
		return nil, err
	}
	here := surroundings{self: p.url, scheme: p.scheme, guest: cfg.Guest, report: func(err error) { p.log.Warn("discovery", slog.String("error", err.Error())) }}
	var err error
	if p.source, err = prepare(src, here); err != nil {
		return nil, err
	}
	if _, ok := p.source.(addressSource); ok && cfg.ID != "" && cfg.ID != p.url {
		return nil, fmt.Errorf("peers: Config.ID is %q: the source knows members by their URLs alone, so leave it empty", cfg.ID)
	}
	p.rebuild()
	if f, ok := p.source.(fixedSource); ok {
		p.setMembers(f.fixed())
	}
	return p, nil
}

// check looks at the arguments of NewPool that do not concern security.
func (p *Pool) check(self string) error {
	switch {
	case p.cfg.PeerSilence < 50*time.Millisecond:
		return fmt.Errorf("peers: Config.PeerSilence is %v: want 50ms or more, 0 for the default", p.cfg.PeerSilence)
	case p.cfg.MaxPending < 0:
		return fmt.Errorf("peers: Config.MaxPending is %d: want 0 for the default, or more", p.cfg.MaxPending)
	case len(p.cfg.ID) > 255:
		return fmt.Errorf("peers: Config.ID has %d bytes: want at most 255", len(p.cfg.ID))
	}
	if self != "" || !p.cfg.Guest {
		url, err := normaliseURL(self)
		if err != nil {
			return fmt.Errorf("peers: self: %w", err)
		}
		p.url = url
	}
	if p.self = p.cfg.ID; p.self == "" {
		p.self = p.url
	}
	if p.self == "" {
		p.self = fmt.Sprintf("guest-%016x", p.incarnation)
	}
	return nil
}

// secure decides how this process and its peers know each other.
func (p *Pool) secure() error {
	var client *tls.Config
	var err error
	switch {
	case len(p.cfg.Secrets) > 0 && p.cfg.TLS != nil:
		return errors.New("peers: Config.Secrets and Config.TLS are both set: want one of them")
	case len(p.cfg.Secrets) > 0:
		p.serverTLS, client, err = tlsFromSecrets(p.cfg.Secrets)
	case p.cfg.TLS != nil:
		p.serverTLS, client, err = tlsFromConfig(p.cfg.TLS, p.hosts)
	case p.cfg.Insecure || p.url != "" && isLoopback(p.url) || p.url == "" && p.cfg.Guest:
	default:
		return fmt.Errorf("peers: %q is not a loopback address: set Config.Secrets or Config.TLS, or Config.Insecure where the network protects peers", p.url)
	}
	if err != nil {
		return err
	}
	if client != nil {
		p.scheme = "https"
	}
	if p.url != "" && p.url[:len(p.scheme)+1] != p.scheme+":" {
		return fmt.Errorf("peers: self is %q: this pool speaks %s", p.url, p.scheme)
	}
	p.transport = newTransport(p.cfg.Dial, client)
	return nil
}

// hosts returns the hosts of all members: the names that their certificates may have.
func (p *Pool) hosts() []string {
	own, _ := hostPort(p.url)
	hosts := []string{own}
	for _, l := range p.view.Load().links {
		host, _ := hostPort(l.url)
		hosts = append(hosts, host)
	}
	return hosts
}

// Join implements onefill.Peers.
func (p *Pool) Join(m onefill.Member) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.mesh() != nil:
		return errors.New("peers: the pool belongs to another mesh already")
	case p.closed:
		return onefill.ErrClosed
	}
	p.joined.Store(&m)
	p.tasks.Go(p.watchSource)
	p.tasks.Go(p.watchHealth)
	return nil
}

// mesh returns the mesh that the pool belongs to, nil before Join.
func (p *Pool) mesh() onefill.Member {
	if m := p.joined.Load(); m != nil {
		return *m
	}
	return nil
}

// watchSource keeps the set of members up to date.
func (p *Pool) watchSource(ctx context.Context) {
	for pause := 100 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
		err := p.source.Watch(ctx, func(set []Peer) {
			found, err := members(p.scheme, set)
			if err != nil {
				p.log.Error("the source names members that cannot be used", slog.String("error", err.Error()))
			}
			p.setMembers(found)
		})
		if ctx.Err() != nil {
			return
		}
		p.log.Error("the source of members failed: the last set stays", slog.Any("error", err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// setMembers takes the full set of members as a source gives it. Where the others know this process no longer, all that it keeps goes: nobody will tell it what
// is invalidated.
func (p *Pool) setMembers(set []Peer) {
	was := p.Listed()
	p.replaceMembers(set)
	if m := p.mesh(); m != nil && was && !p.Listed() {
		m.Forget()
	}
}

func (p *Pool) replaceMembers(set []Peer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := make(map[string]*link, len(set))
	p.listed = false
	for _, m := range set {
		if m.ID == p.self {
			p.listed = true
			continue
		}
		l := p.links[m.ID]
		if l == nil || l.url != m.URL || m.Incarnation > l.listedAs {
			l = newLink(p, m)
		}
		now[m.ID] = l
	}
	before := p.links
	p.links = now
	p.rebuild()
	for id, l := range before { // only now: nobody is led to them any more
		if now[id] != l {
			l.retire()
			p.retired = append(p.retired, l)
		}
	}
	if !p.isKnown {
		p.isKnown = true
		close(p.known)
	}
}

// Self implements onefill.Peers.
func (p *Pool) Self() string { return p.self }

// Ready implements onefill.Peers. It also returns an error where a member is another spelling of this process.
func (p *Pool) Ready(ctx context.Context) error {
	select {
	case <-p.known:
	case <-ctx.Done():
		return ctx.Err()
	}
	for _, l := range p.view.Load().links {
		if err := l.misconfigured(); err != nil {
			return err
		}
	}
	return nil
}

// States implements onefill.Peers.
func (p *Pool) States() []onefill.PeerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	own := "alive"
	switch {
	case p.leaving:
		own = "left"
	case !p.owns():
		own = "guest"
	}
	states := []onefill.PeerState{{ID: p.self, URL: p.url, Self: true, State: own}}
	for id, l := range p.links {
		states = append(states, onefill.PeerState{ID: id, URL: l.url, State: l.state().String()})
	}
	slices.SortFunc(states[1:], func(a, b onefill.PeerState) int { return cmp.Compare(a.ID, b.ID) })
	return states
}
