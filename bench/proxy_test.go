package bench

// A proxy between a client and Redis that counts round trips and makes each of them longer, as a network would. It lives in this process.

import (
	"io"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// proxy passes on what clients and Redis say to each other.
type proxy struct {
	listener net.Listener
	target   string
	delay    time.Duration // of each trip, put on the way there
	trips    atomic.Int64
}

// startProxy starts a proxy in front of target, for as long as the benchmark runs.
func startProxy(b *testing.B, target string, delay time.Duration) *proxy {
	b.Helper()
	listener, err := listen()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { listener.Close() })
	p := &proxy{listener: listener, target: target, delay: delay}
	go p.accept()
	return p
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		asking := new(atomic.Bool)
		go p.there(client, server, asking)
		go p.back(client, server, asking)
	}
}

// there passes on what the client says. What it says at once, or in pieces before the answer begins, is one trip.
func (p *proxy) there(client, server net.Conn, asking *atomic.Bool) {
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := client.Read(buffer)
		arrived := time.Now()
		if err != nil {
			return
		}
		if !asking.Swap(true) {
			p.trips.Add(1)
		}
		if p.delay > 0 {
			pauseUntil(arrived.Add(p.delay))
		}
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// back passes on what Redis says.
func (p *proxy) back(client, server net.Conn, asking *atomic.Bool) {
	defer client.Close()
	_, _ = io.Copy(client, &answers{server, asking})
}

// answers notes when an answer begins.
type answers struct {
	server net.Conn
	asking *atomic.Bool
}

func (a *answers) Read(buffer []byte) (int, error) {
	n, err := a.server.Read(buffer)
	a.asking.Store(false)
	return n, err
}

// tripsOf returns how many trips run takes in the middle of many runs: the sign of life that onefill sends each second falls into few of them.
func (p *proxy) tripsOf(b *testing.B, runs int, run func(i int) error) float64 {
	b.Helper()
	counts := make([]int64, runs)
	for i := range counts {
		before := p.trips.Load()
		if err := run(i); err != nil {
			b.Fatal(err)
		}
		counts[i] = p.trips.Load() - before
	}
	slices.Sort(counts)
	return float64(counts[runs/2])
}

// delays are the networks that the tier's benchmarks run on: the loopback interface without a proxy, and a proxy that adds half a millisecond to each trip.
var delays = []struct {
	name string
	each time.Duration
}{{"0", 0}, {"0.5ms", 500 * time.Microsecond}}
