// Members of a pool for tests: meshes that speak over a network in memory, a loader that keeps a book of its loads, and what is asked of all of them.

package peers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

const group = "users"

// circle is some processes that know each other.
type circle struct {
	t    *testing.T
	net  *network
	cfg  peers.Config     // of each pool; Dial is set
	opts []onefill.Option // of each group
	load func(ctx context.Context, m *member, key string) (string, error)
	wrap func(http.Handler) http.Handler // around each pool; nil lets the pool serve itself
	log  *logbook

	members []*member

	mu    sync.Mutex // guards loads
	loads map[string][]string
}

// newCircle returns a circle without members, whose loader takes no time.
func newCircle(t *testing.T) *circle {
	c := &circle{t: t, net: newNetwork(t), loads: make(map[string][]string), log: &logbook{}}
	c.cfg = peers.Config{Insecure: true, Logger: slog.New(slog.NewTextHandler(c.log, nil))}
	c.load = func(_ context.Context, _ *member, key string) (string, error) { return "value of " + key, nil }
	return c
}

// slowly makes loads take d.
func (c *circle) slowly(d time.Duration) *circle {
	c.load = func(ctx context.Context, _ *member, key string) (string, error) {
		select {
		case <-time.After(d):
			return "value of " + key, nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	return c
}

func addr(i int) string  { return fmt.Sprintf("m%d:7946", i) }
func urlOf(i int) string { return "http://" + addr(i) }

// staticOf is the fixed list of n members.
func staticOf(n int) peers.Source { return peers.Static(urls(n)...) }

// ownerAmong returns which of these members owns key.
func ownerAmong(key string, urls ...string) string {
	p, err := peers.NewPool("", peers.Static(urls...), peers.Config{Guest: true})
	if err != nil {
		panic(err)
	}
	return p.Owner(group, key)
}

// deputyOf returns the number of the member that is next in rank after key's owner among n.
func deputyOf(n int, key string) int {
	owner := ownerAmong(key, urls(n)...)
	deputy := ownerAmong(key, slices.DeleteFunc(urls(n), func(u string) bool { return u == owner })...)
	return slices.Index(urls(n), deputy)
}

func urls(n int) (all []string) {
	for i := range n {
		all = append(all, urlOf(i))
	}
	return all
}

// start starts n members that all know each other from a fixed list.
func (c *circle) start(n int) *circle {
	c.t.Helper()
	for i := range n {
		c.join(urlOf(i), staticOf(n))
	}
	return c
}

// member is one process.
type member struct {
	*onefill.Group[string]
	c        *circle
	url      string
	addr     string
	mesh     *onefill.Mesh
	pool     *peers.Pool
	listener *listener
}

// join starts a member at self, an URL whose host and port are its address in the network; "" is a guest without one.
func (c *circle) join(self string, src peers.Source, opts ...onefill.Option) *member {
	c.t.Helper()
	return c.joinAt(self, "", src, opts...)
}

// joinAt starts a member that listens elsewhere than its URL says; "" is there.
func (c *circle) joinAt(self, elsewhere string, src peers.Source, opts ...onefill.Option) *member {
	c.t.Helper()
	m := c.build(self, src)
	if elsewhere == "" {
		m.serve()
	} else {
		m.serveAt(elsewhere)
	}
	g, err := onefill.NewGroup(m.mesh, group, m.load, append(c.opts, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	m.Group = g
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.mesh.Ready(ctx)
	return m
}

// build makes a member without a group that does not listen.
func (c *circle) build(self string, src peers.Source) *member {
	c.t.Helper()
	m := &member{c: c, url: self}
	if u, err := url.Parse(self); err == nil {
		m.addr = u.Host
	}
	cfg := c.cfg
	cfg.Dial, cfg.Guest = c.net.dial, cfg.Guest || self == ""
	var err error
	if m.pool, err = peers.NewPool(self, src, cfg); err != nil {
		c.t.Fatal(err)
	}
	if m.mesh, err = onefill.New(onefill.Config{Namespace: "test", Peers: m.pool, MaxBytes: 64 << 20, Logger: cfg.Logger}); err != nil {
		c.t.Fatal(err)
	}
	c.members = append(c.members, m)
	c.t.Cleanup(m.close)
	return m
}

// serve listens at the member's address.
func (m *member) serve() {
	if m.addr == "" {
		return
	}
	m.serveAt(m.addr)
}

func (m *member) serveAt(addr string) {
	m.listener = m.c.net.listen(addr)
	if m.c.wrap == nil {
		go func() { _ = m.pool.Serve(m.listener) }()
		return
	}
	server := &http.Server{Handler: m.c.wrap(m.pool)}
	go func() { _ = server.Serve(m.listener) }()
	m.c.t.Cleanup(func() {
		m.close()
		_ = server.Close()
	})
}

func (m *member) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = m.mesh.Close(ctx)
	if m.listener != nil {
		_ = m.listener.Close()
	}
}

// load is the members' loader: it enters itself in the circle's book and does what the circle says.
func (m *member) load(ctx context.Context, key string) (string, error) {
	c := m.c
	c.mu.Lock()
	c.loads[key] = append(c.loads[key], m.url)
	load := c.load
	c.mu.Unlock()
	return load(ctx, m, key)
}

// loadsOf returns the URLs of the members that loaded key, one for each load.
func (c *circle) loadsOf(key string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.loads[key]...)
}

// wantLoads fails the test unless key was loaded at just these members.
func (c *circle) wantLoads(key string, at ...string) {
	c.t.Helper()
	if got := c.loadsOf(key); fmt.Sprint(got) != fmt.Sprint(at) {
		c.t.Errorf("loads of %q: at %v, want at %v", key, got, at)
	}
}

// totalLoads is the number of loads of all keys.
func (c *circle) totalLoads() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.loads {
		n += len(l)
	}
	return n
}

// keysOf returns n keys that the member with this URL owns, as m sees it.
func (m *member) keysOf(owner string, n int) (keys []string) {
	m.c.t.Helper()
	for i := 0; len(keys) < n; i++ {
		if i > 1000*n+100000 {
			m.c.t.Fatalf("%s owns hardly anything", owner)
		}
		if key := fmt.Sprintf("user:%d", i); m.pool.Owner(group, key) == owner {
			keys = append(keys, key)
		}
	}
	return keys
}

func (m *member) keyOf(owner string) string { return m.keysOf(owner, 1)[0] }

// answer is what a Get brought.
type answer struct {
	value string
	err   error
	took  time.Duration
}

// get calls Get in a goroutine of its own. What takes ten minutes hangs.
func (m *member) get(key string) <-chan answer {
	answers := make(chan answer, 1)
	began := time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		v, err := m.Get(ctx, key)
		answers <- answer{v, err, time.Since(began)}
	}()
	return answers
}

// must fails the test unless Get brings the loader's value within the time given.
func (m *member) must(key string, within time.Duration) {
	m.c.t.Helper()
	m.check(key, <-m.get(key), within)
}

func (m *member) check(key string, a answer, within time.Duration) {
	m.c.t.Helper()
	if a.err != nil || a.value != "value of "+key {
		m.c.t.Errorf("%s: Get(%q) = %q, %v", m.url, key, a.value, a.err)
	}
	if a.took > within {
		m.c.t.Errorf("%s: Get(%q) took %v, want at most %v", m.url, key, a.took, within)
	}
}

// state is what m believes of the member with this ID.
func (m *member) state(id string) string {
	for _, s := range m.pool.States() {
		if s.ID == id {
			return s.State
		}
	}
	return "no member"
}

// wantState fails the test unless m believes this of the member with this ID.
func (m *member) wantState(id, want string) {
	m.c.t.Helper()
	if got := m.state(id); got != want {
		m.c.t.Errorf("%s believes that %s is %q, want %q", m.url, id, got, want)
	}
}

// source is a list of members that the test changes.
type source struct {
	mu      sync.Mutex // guards what follows
	set     []peers.Peer
	changed chan struct{}
}

// dynamic returns a source that lists these URLs until told otherwise.
func dynamic(urls ...string) *source {
	s := &source{changed: make(chan struct{})}
	for _, u := range urls {
		s.set = append(s.set, peers.Peer{URL: u})
	}
	return s
}

func (s *source) change(set ...peers.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set = set
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *source) Watch(ctx context.Context, set func([]peers.Peer)) error {
	for {
		s.mu.Lock()
		now, changed := append([]peers.Peer(nil), s.set...), s.changed
		s.mu.Unlock()
		set(now)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// logbook keeps what is logged.
type logbook struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// lines returns the lines that contain all of the texts.
func (l *logbook) lines(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
next:
	for _, line := range strings.Split(l.b.String(), "\n") {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

var errSource = errors.New("the source is down")
