// This file is a bad network in fake time: replies that are lost, requests that never arrive, and delays.

package lock_test

import (
	"errors"
	"net"
	"sync"
	"time"
)

// network is what lies between one process and the server.
type network struct {
	mu       sync.Mutex // guards everything below
	deaf     time.Time  // until then requests arrive, and replies seem to be on their way; then the connection breaks
	cut      time.Time  // until then requests are lost
	delay    time.Duration
	swallows int // how many replies to lose from now on
	conns    []net.Conn
	closed   bool
}

// close ends every connection, and refuses more: go-redis may dial in the background, and a bubble ends only when nobody waits.
func (n *network) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for _, c := range n.conns {
		_ = c.Close()
	}
}

func (n *network) set(change func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

// fate says what becomes of a reply: for how long it seems to be on its way before it is lost, and how late it is if it is not.
func (n *network) fate() (lostFor, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.swallows > 0 {
		n.swallows--
		return time.Nanosecond, 0
	}
	return time.Until(n.deaf), n.delay
}

func (n *network) broken() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.closed || time.Now().Before(n.deaf) || time.Now().Before(n.cut)
}

// badConn is a connection over the network: requests are written to the server's side at once, replies pass through deliver.
type badConn struct {
	net.Conn // the client's end of what deliver writes to
	server   net.Conn
	network  *network
}

// dial returns a connection of the process. It fails at once while the network is broken, and the replies with which the client sets a connection up (to
// HELLO and two CLIENT SETINFO) are never late: go-redis holds a mutex meanwhile, and where one waits for a mutex the bubble's time stands still.
func (n *network) dial(to func() (net.Conn, error)) (net.Conn, error) {
	if n.broken() {
		return nil, errors.New("no network")
	}
	server, err := to()
	if err != nil {
		return nil, err
	}
	client, relay := net.Pipe()
	replies := make(chan []byte, 1000) // miniredis holds its lock while it writes: the replies are taken off its hands at once
	go collect(server, replies)
	go n.deliver(replies, relay)
	c := &badConn{client, server, n}
	n.set(func(n *network) { n.conns = append(n.conns, c) })
	return c, nil
}

func collect(server net.Conn, replies chan<- []byte) {
	defer close(replies)
	for {
		buffer := make([]byte, 4096)
		k, err := server.Read(buffer)
		if err != nil {
			return
		}
		replies <- buffer[:k]
	}
}

func (n *network) deliver(replies <-chan []byte, relay net.Conn) {
	broken, setUp := false, 3
	for reply := range replies {
		lostFor, delay := n.fate()
		if setUp > 0 {
			setUp, delay = setUp-1, 0
		}
		time.Sleep(max(lostFor, delay))
		if lostFor > 0 && !broken {
			broken = true
			_ = relay.Close()
		}
		if !broken {
			_, _ = relay.Write(reply)
		}
	}
	_ = relay.Close()
}

func (c *badConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	cut := time.Now().Before(c.network.cut)
	c.network.mu.Unlock()
	if cut {
		return len(p), nil
	}
	return c.server.Write(p)
}

func (c *badConn) SetWriteDeadline(t time.Time) error { return c.server.SetWriteDeadline(t) }

func (c *badConn) Close() error {
	_ = c.server.Close()
	return c.Conn.Close()
}
