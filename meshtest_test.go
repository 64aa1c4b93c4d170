// What the tests of this package build pools from: meshes that speak to each other over net.Pipe, so that they live in a synctest bubble and time costs
// nothing; a source that counts its loads; an observer and a log that remember. What is asserted of them stands in the other files.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// network connects processes by net.Pipe.
type network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*pipeListener
	cut       map[string]bool // addresses that nobody can reach
}

func newNetwork() *network {
	return &network{listeners: make(map[string]*pipeListener), cut: make(map[string]bool)}
}

func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	l := n.listeners[addr]
	if n.cut[addr] {
		l = nil
	}
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("%s: connection refused", addr)
	}
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return nil, fmt.Errorf("%s: connection refused", addr)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *network) listen(addr string) net.Listener {
	l := &pipeListener{network: n, addr: pipeAddr(addr), conns: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	n.listeners[addr] = l
	n.mu.Unlock()
	return l
}

// unplug makes an address unreachable for new connections and ends those that its process has accepted.
func (n *network) unplug(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[addr] = true
	for _, c := range n.listeners[addr].accepted {
		_ = c.Close()
	}
}

type pipeListener struct {
	network  *network
	addr     pipeAddr
	conns    chan net.Conn
	closed   chan struct{}
	closing  sync.Once
	accepted []net.Conn // guarded by the network's mu
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		l.network.mu.Lock()
		l.accepted = append(l.accepted, c)
		l.network.mu.Unlock()
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.closing.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return l.addr }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

// process is one member of a pool under test.
type process struct {
	mesh  *onefill.Mesh
	pool  *peers.Pool
	url   string
	trips *recorder
	log   *memoryLog
}

// addressOf is where process i of a pool listens.
func addressOf(i int) string { return fmt.Sprintf("127.0.0.1:%d", 7000+i) }
func urlOf(i int) string     { return "http://" + addressOf(i) }

// newMeshes starts a pool of n processes that know each other, and closes them at the end of the test. It is to be called in a bubble.
func newMeshes(t *testing.T, n int) []*process {
	t.Helper()
	return newMeshesOn(t, newNetwork(), n)
}

func newMeshesOn(t *testing.T, net *network, n int) []*process {
	t.Helper()
	var urls []string
	for i := range n {
		urls = append(urls, urlOf(i))
	}
	all := make([]*process, n)
	for i := range all {
		all[i] = newProcess(t, net, i, peers.Static(urls...), onefill.Config{})
	}
	return all
}

// newProcess starts the process that listens at addressOf(i), with the members that src names.
func newProcess(t *testing.T, net *network, i int, src peers.Source, cfg onefill.Config) *process {
	t.Helper()
	p := &process{url: urlOf(i), trips: &recorder{}, log: &memoryLog{}}
	logger := slog.New(p.log)
	var err error
	if p.pool, err = peers.NewPool(p.url, src, peers.Config{Dial: net.dial, Logger: logger}); err != nil {
		t.Fatal(err)
	}
	if cfg.Namespace == "" {
		cfg.Namespace = "test"
	}
	cfg.Peers, cfg.Observer, cfg.Logger, cfg.MaxBytes = p.pool, p.trips, logger, 8<<20
	if p.mesh, err = onefill.New(cfg); err != nil {
		t.Fatal(err)
	}
	listener := net.listen(addressOf(i))
	served := make(chan error, 1)
	go func() { served <- p.pool.Serve(listener) }()
	t.Cleanup(func() {
		closeMesh(t, p.mesh)
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve returned %v", err)
		}
	})
	return p
}

// newMesh returns the mesh of a process without a pool.
func newMesh(t *testing.T, cfg onefill.Config) *onefill.Mesh {
	t.Helper()
	if cfg.Namespace == "" {
		cfg.Namespace = "test"
	}
	if cfg.MaxBytes == 0 {
		cfg.MaxBytes = 8 << 20
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	m, err := onefill.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeMesh(t, m) })
	return m
}

func closeMesh(t *testing.T, m *onefill.Mesh) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.Close(ctx); err != nil {
		t.Logf("Close: %v", err) // farewells to processes that the test has closed before
	}
}

func newGroup[V any](t *testing.T, m *onefill.Mesh, name string, load onefill.Loader[V], opts ...onefill.Option) *onefill.Group[V] {
	t.Helper()
	g, err := onefill.NewGroup(m, name, load, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// inAll adds the same group to every process.
func inAll[V any](t *testing.T, all []*process, name string, load onefill.Loader[V], opts ...onefill.Option) []*onefill.Group[V] {
	t.Helper()
	var groups []*onefill.Group[V]
	for _, p := range all {
		groups = append(groups, newGroup(t, p.mesh, name, load, opts...))
	}
	return groups
}

// keysOf returns n keys of a group that owner owns, as asked of it.
func keysOf(owner *process, group string, n int) []string {
	var keys []string
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("key-%d", i); owner.pool.Owner(group, key) == owner.url {
			keys = append(keys, key)
		}
	}
	return keys
}

func keyOf(owner *process, group string) string { return keysOf(owner, group, 1)[0] }

// countingSource is what loaders read. It counts.
type countingSource struct {
	took time.Duration // of each load

	mu    sync.Mutex // guards what follows
	count map[string]int
	fails error
}

func (d *countingSource) load(ctx context.Context, key string) (string, error) {
	d.mu.Lock()
	if d.count == nil {
		d.count = make(map[string]int)
	}
	d.count[key]++
	err, n := d.fails, d.count[key]
	d.mu.Unlock()
	if d.took > 0 {
		select {
		case <-time.After(d.took):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s/%d", key, n), nil
}

// fail makes loads that begin from now on fail with err; nil ends that.
func (d *countingSource) fail(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fails = err
}

// loads is how often key was loaded.
func (d *countingSource) loads(key string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.count[key]
}

// total is how often anything was loaded.
func (d *countingSource) total() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.count {
		n += c
	}
	return n
}

// result is what a Get returned, and when.
type result struct {
	value string
	err   error
	after time.Duration
}

// together calls get n times at once and returns all results when the last is there.
func together(n int, get func(i int) (string, error)) []result {
	results := make([]result, n)
	began := time.Now()
	var running sync.WaitGroup
	for i := range results {
		running.Go(func() {
			v, err := get(i)
			results[i] = result{v, err, time.Since(began)}
		})
	}
	running.Wait()
	return results
}

// recorder is an observer that remembers trips.
type recorder struct {
	mu   sync.Mutex // guards what follows and the results in it
	list []*recorded
}

type recorded struct {
	onefill.Trip
	parent *recorded
	ended  int
	result onefill.Result
}

type recordedKey struct{}

func (r *recorder) Begin(ctx context.Context, trip *onefill.Trip) (context.Context, func(onefill.Result)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := &recorded{}
	now.parent, _ = ctx.Value(recordedKey{}).(*recorded)
	if trip.Kind == onefill.TripFetch || trip.Kind == onefill.TripLoad {
		trip.Trace = fmt.Sprintf("00-%032x-%016x-01", 1, len(r.list)+1)
	}
	now.Trip = *trip
	r.list = append(r.list, now)
	return context.WithValue(ctx, recordedKey{}, now), func(result onefill.Result) {
		r.mu.Lock()
		defer r.mu.Unlock()
		now.ended++
		now.result = result
	}
}

// trips returns what was recorded so far.
func (r *recorder) trips() []*recorded {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// of returns the recorded trips of one kind.
func (r *recorder) of(kind onefill.TripKind) []*recorded {
	return slices.DeleteFunc(r.trips(), func(trip *recorded) bool { return trip.Kind != kind })
}

// path spells the recorded trips, each with the trips around it: "get get/load".
func (r *recorder) path() string {
	var all []string
	for _, trip := range r.trips() {
		name := trip.Kind.String()
		for p := trip.parent; p != nil; p = p.parent {
			name = p.Kind.String() + "/" + name
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// memoryLog is a slog.Handler that remembers lines.
type memoryLog struct {
	mu    sync.Mutex // guards lines
	lines []slog.Record
}

func (l *memoryLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *memoryLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *memoryLog) WithGroup(string) slog.Handler            { return l }
func (l *memoryLog) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, r)
	return nil
}

// text returns all lines with their attributes.
func (l *memoryLog) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all strings.Builder
	for _, r := range l.lines {
		fmt.Fprint(&all, r.Level, " ", r.Message)
		r.Attrs(func(a slog.Attr) bool { fmt.Fprint(&all, " ", a); return true })
		all.WriteByte('\n')
	}
	return all.String()
}
