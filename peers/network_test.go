// A network in memory, for tests whose time is a bubble's: addresses, connections that can be lost without anybody being told, and counts of them. What speaks
// over it is in member_test.go and proxy_test.go.

package peers_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// network is where addresses are found. It is safe for concurrent use.
type network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
	dark      map[string]chan struct{} // addresses that swallow everything; closed when they no longer do
	conns     map[string]map[*conn]bool
	most      map[string]int // open connections at once
	dials     map[string]int
}

func newNetwork(t *testing.T) *network {
	n := &network{
		listeners: make(map[string]*listener), dark: make(map[string]chan struct{}), conns: make(map[string]map[*conn]bool),
		most: make(map[string]int), dials: make(map[string]int),
	}
	t.Cleanup(func() {
		for _, addr := range slices.Collect(maps.Keys(n.conns)) {
			n.kill(addr)
		}
		for _, l := range slices.Collect(maps.Values(n.listeners)) {
			_ = l.Close()
		}
	})
	return n
}

var errRefused = errors.New("connection refused")

// dial is a Config.Dial.
func (n *network) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.dials[addr]++
	l, dark := n.listeners[addr], n.dark[addr]
	n.mu.Unlock()
	if dark != nil {
		select {
		case <-dark:
			return n.dial(ctx, "", addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if l == nil {
		return nil, fmt.Errorf("%s: %w", addr, errRefused)
	}
	near, far := net.Pipe()
	c := &conn{Conn: near, net: n, addr: addr, buffer: make(chan []byte, 16), closed: make(chan struct{})}
	n.track(c)
	go c.pump()
	select {
	case l.incoming <- far:
		return c, nil
	case <-l.closed:
		c.Close()
		return nil, fmt.Errorf("%s: %w", addr, errRefused)
	case <-ctx.Done():
		c.Close()
		return nil, ctx.Err()
	}
}

func (n *network) track(c *conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.conns[c.addr] == nil {
		n.conns[c.addr] = make(map[*conn]bool)
	}
	n.conns[c.addr][c] = true
	n.most[c.addr] = max(n.most[c.addr], len(n.conns[c.addr]))
}

// open is how many connections to addr there are; most is how many there were at once.
func (n *network) open(addr string) (open, most int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns[addr]), n.most[addr]
}

func (n *network) dialled(addr string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[addr]
}

// listen makes addr reachable.
func (n *network) listen(addr string) *listener {
	l := &listener{net: n, addr: addr, incoming: make(chan net.Conn), closed: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[addr] = l
	return l
}

// kill makes addr what it is after its process has died: connections break, new ones are refused.
func (n *network) kill(addr string) {
	n.mu.Lock()
	l, conns := n.listeners[addr], n.conns[addr]
	delete(n.listeners, addr)
	n.conns[addr] = nil
	n.mu.Unlock()
	if l != nil {
		l.Close()
	}
	for c := range conns {
		c.Close()
	}
}

// lose lets the connections to addr that there are go on without carrying anything, as they do when a router forgets them. New ones work.
func (n *network) lose(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns[addr] {
		c.lost.Store(true)
	}
}

// darken loses the connections to addr, and new ones are never made, until lighten.
func (n *network) darken(addr string) {
	n.lose(addr)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.dark[addr] = make(chan struct{})
}

func (n *network) lighten(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.dark[addr])
	delete(n.dark, addr)
}

// conn is the dialling end of a connection. It buffers what is written a little, as a socket does: ends that write at the same time do not block each other.
type conn struct {
	net.Conn
	net    *network
	addr   string
	lost   atomic.Bool
	buffer chan []byte
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Write(b []byte) (int, error) {
	if c.lost.Load() {
		return len(b), nil
	}
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	case c.buffer <- append([]byte(nil), b...):
		return len(b), nil
	}
}

// pump sends what was written.
func (c *conn) pump() {
	for {
		select {
		case b := <-c.buffer:
			if _, err := c.Conn.Write(b); err != nil {
				c.Close()
				return
			}
		case <-c.closed:
			return
		}
	}
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.lost.Load() {
			return n, err
		}
	}
}

func (c *conn) Close() error {
	c.net.mu.Lock()
	delete(c.net.conns[c.addr], c)
	c.net.mu.Unlock()
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// listener is a net.Listener.
type listener struct {
	net      *network
	addr     string
	incoming chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.incoming:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	if l.net.listeners[l.addr] == l {
		delete(l.net.listeners, l.addr)
	}
	return nil
}

func (l *listener) Addr() net.Addr { return address(l.addr) }

type address string

func (a address) Network() string { return "memory" }
func (a address) String() string  { return string(a) }

// mute makes addr accept connections, read what comes, and never answer.
func (n *network) mute(addr string) *listener {
	l := n.listen(addr)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 4096)
				for {
					if _, err := c.Read(buf); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l
}
