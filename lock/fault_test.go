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
	deaf     time.Time  // until then requests arrive and replies are lost
	cut      time.Time  // until then requests are lost
	delay    time.Duration
	swallows int // how many replies to lose from now on
}

var errLost = errors.New("reply lost")

// dial returns a connection of the process.
func (n *network) dial(to func() (net.Conn, error)) (net.Conn, error) {
	inner, err := to()
	if err != nil {
		return nil, err
	}
	return &badConn{inner, n}, nil
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

func (n *network) set(change func(n *network)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n)
}

type badConn struct {
	net.Conn
	network *network
}

func (c *badConn) Read(p []byte) (int, error) {
	k, err := c.Conn.Read(p)
	if err != nil {
		return k, err
	}
	lostFor, delay := c.network.fate()
	time.Sleep(max(lostFor, delay))
	if lostFor > 0 {
		_ = c.Close()
		return 0, errLost
	}
	return k, nil
}

func (c *badConn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	cut := time.Now().Before(c.network.cut)
	c.network.mu.Unlock()
	if cut {
		return len(p), nil
	}
	return c.Conn.Write(p)
}
