// Tests of DNS: a real server on loopback for what names mean, a scripted resolver in fake time for what happens when it fails.

package peers

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"
)

// zone is a DNS server on loopback with a handful of records.
type zone struct {
	mu      sync.Mutex // guards records and broken
	records []dns.RR
	broken  map[uint16]bool // types that are answered SERVFAIL
}

func (z *zone) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	z.mu.Lock()
	defer z.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	m.Authoritative = true
	known := false
	for _, rr := range z.records {
		if strings.EqualFold(rr.Header().Name, q.Question[0].Name) {
			known = true
			if rr.Header().Rrtype == q.Question[0].Qtype {
				m.Answer = append(m.Answer, rr)
			}
		}
	}
	switch {
	case z.broken[q.Question[0].Qtype]:
		m.Rcode = dns.RcodeServerFailure
	case !known:
		m.Rcode = dns.RcodeNameError
	}
	w.WriteMsg(m)
}

// serveZone starts the server and returns a resolver that asks it.
func serveZone(t *testing.T, z *zone, lines ...string) resolver {
	for _, line := range lines {
		rr, err := dns.NewRR(line)
		if err != nil {
			t.Fatal(err)
		}
		z.records = append(z.records, rr)
	}
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	up := make(chan struct{})
	server := &dns.Server{PacketConn: conn, Handler: z, NotifyStartedFunc: func() { close(up) }}
	go server.ActivateAndServe()
	<-up
	t.Cleanup(func() { server.Shutdown() })
	return &net.Resolver{PreferGo: true, StrictErrors: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

// boundDNS returns DNS(name) as a pool with this URL would watch it.
func boundDNS(t *testing.T, name, self string, r resolver, report func(error)) Source {
	t.Helper()
	src := DNS(name)
	src.(*dnsSource).resolver = r
	src, err := prepare(src, surroundings{self: self, scheme: "https", report: report})
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// firstSet returns the URLs of the first set that src tells.
func firstSet(t *testing.T, src Source) []string {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	told := make(chan []Peer, 1)
	go src.Watch(ctx, func(p []Peer) { told <- p })
	select {
	case set := <-told:
		peers, err := members("https", set)
		if err != nil {
			t.Fatal(err)
		}
		urls := make([]string, len(peers))
		for i, p := range peers {
			urls[i] = p.URL
		}
		return urls
	case <-ctx.Done():
		t.Fatal("no set was told")
		return nil
	}
}

func TestDNSNameStandsForOneMemberPerHost(t *testing.T) {
	r := serveZone(t, &zone{},
		"both.test. 5 A 10.0.0.2", "both.test. 5 A 10.0.0.1", "both.test. 5 AAAA 2001:db8::1", "both.test. 5 AAAA 2001:db8::2",
		"four.test. 5 A 10.0.0.1", "six.test. 5 AAAA 2001:db8::1",
		"_onefill._tcp.test. 5 SRV 0 0 7946 Users-0.test.", "_onefill._tcp.test. 5 SRV 9 9 7947 users-1.test.", "_onefill._tcp.test. 5 SRV 0 0 0 .",
	)
	v4 := []string{"https://10.0.0.1:7946", "https://10.0.0.2:7946"}
	v6 := []string{"https://[2001:db8::1]:7946", "https://[2001:db8::2]:7946"}
	for _, c := range []struct {
		name, self string
		want       []string
	}{
		{"both.test.:7946", "https://10.0.0.1:7946", v4},
		{"both.test.:7946", "https://[2001:db8::1]:7946", v6},
		{"both.test.:7946", "https://node:7946", v4},
		{"both.test.:7946", "", v4},
		{"four.test.:7946", "https://[2001:db8::1]:7946", v4[:1]},
		{"six.test.:7946", "https://10.0.0.1:7946", v6[:1]},
		{"none.test.:7946", "https://10.0.0.1:7946", nil},
		{"10.0.0.1:7946", "https://10.0.0.1:7946", v4[:1]},
		{"[2001:db8::1]:7946", "https://10.0.0.1:7946", v6[:1]},
		{"_onefill._tcp.test.", "https://users-0.test:7946", []string{"https://users-0.test:7946", "https://users-1.test:7947"}},
		{"_none._tcp.test.", "https://users-0.test:7946", nil},
	} {
		if got := firstSet(t, boundDNS(t, c.name, c.self, r, nil)); !slices.Equal(got, c.want) {
			t.Errorf("%s for %q: members are %q, want %q", c.name, c.self, got, c.want)
		}
	}
}

// A server that fails for one kind of address must not make a pool that uses that kind fall back to the other.
func TestFailedLookUpOfThisProcessesKindIsNotAnAnswer(t *testing.T) {
	r := serveZone(t, &zone{broken: map[uint16]bool{dns.TypeAAAA: true}}, "both.test. 5 A 10.0.0.1", "both.test. 5 AAAA 2001:db8::1")
	src := boundDNS(t, "both.test.:7946", "https://[2001:db8::1]:7946", r, nil).(*dnsSource)
	if found, err := src.lookUp(t.Context()); err == nil {
		t.Errorf("it found %v", found)
	}
	if r := DNS("both.test.:7946").(*dnsSource).resolver.(*net.Resolver); !r.StrictErrors {
		t.Error("the resolver of a pool takes half an answer for a whole one")
	}
}

func TestMalformedDNSNameIsRefused(t *testing.T) {
	for _, name := range []string{"", ":7946", "users:", "users:0", "users:70000", "users:http", "https://users:7946", "users/x", "users:7946/x", "a b:1", "_x._tcp.users:7946", "10.0.0.1", "::1"} {
		_, err := prepare(DNS(name), surroundings{self: "http://node:1", scheme: "http"})
		if err == nil || !strings.HasPrefix(err.Error(), "peers: DNS(\""+name+"\")") {
			t.Errorf("%q: %v", name, err)
		}
		if err := DNS(name).Watch(t.Context(), func([]Peer) {}); err == nil {
			t.Errorf("%q can be watched", name)
		}
	}
}

// script is a resolver whose answers a test sets.
type script struct {
	mu    sync.Mutex // guards all below
	addrs []netip.Addr
	err   error
	asked []time.Time
}

func (s *script) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, time.Now())
	return s.addrs, s.err
}

func (s *script) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, errors.ErrUnsupported
}

func (s *script) answer(err error, addrs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.addrs = err, nil
	for _, a := range addrs {
		s.addrs = append(s.addrs, netip.MustParseAddr(a))
	}
}

// watchScript watches the scripted name and returns what was told and what was reported so far; call them only when the bubble is idle.
func watchScript(t *testing.T, s *script) (told func() [][]Peer, reported func() []error) {
	var sets [][]Peer
	var failures []error
	src := boundDNS(t, "users.test:7946", "https://10.0.0.1:7946", s, func(err error) { failures = append(failures, err) })
	go src.Watch(t.Context(), func(p []Peer) { sets = append(sets, p) })
	synctest.Wait()
	return func() [][]Peer { return sets }, func() []error { return failures }
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestFailedOrEmptyLookUpKeepsTheLastMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.answer(nil, "10.0.0.1", "10.0.0.2")
		told, reported := watchScript(t, s)
		broken := errors.New("server misbehaving")
		for _, err := range []error{broken, &net.DNSError{IsNotFound: true}, nil} {
			s.answer(err)
			pass(6 * time.Second)
			if n := len(told()); n != 1 {
				t.Fatalf("after %v %d sets were told", err, n)
			}
			if len(reported()) == 0 {
				t.Fatalf("%v was not reported", err)
			}
		}
		if err := reported()[0]; !errors.Is(err, broken) || !strings.Contains(err.Error(), "users.test:7946") {
			t.Errorf("reported was %v", err)
		}
		s.answer(nil, "10.0.0.3", "10.0.0.1")
		pass(6 * time.Second)
		if n := len(told()); n != 2 || len(told()[1]) != 2 || told()[1][1].URL != "//10.0.0.3:7946" {
			t.Errorf("after the recovery the sets are %v", told())
		}
	})
}

// Contract: P6
func TestEmptyFirstLookUpTellsThatThereAreNoMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.answer(&net.DNSError{IsNotFound: true})
		told, reported := watchScript(t, s)
		if len(told()) != 1 || len(told()[0]) != 0 || len(reported()) != 0 {
			t.Errorf("told were %v, reported %v", told(), reported())
		}
	})
}

func TestFailedFirstLookUpTellsNothingAndIsTriedAgainSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.answer(errors.New("server misbehaving"))
		told, _ := watchScript(t, s)
		if len(told()) != 0 {
			t.Fatalf("told were %v", told())
		}
		s.answer(nil, "10.0.0.1")
		pass(time.Second)
		if len(told()) != 1 || len(told()[0]) != 1 {
			t.Errorf("a second later told were %v", told())
		}
	})
}

func TestNameIsResolvedAnewEveryFiveSecondsOutOfStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		s.answer(nil, "10.0.0.1")
		told, _ := watchScript(t, s)
		pass(time.Minute)
		if len(told()) != 1 {
			t.Errorf("members that did not change were told %d times", len(told()))
		}
		pauses := map[time.Duration]bool{}
		for i := range s.asked[1:] {
			pause := s.asked[i+1].Sub(s.asked[i])
			pauses[pause] = true
			if pause < 4500*time.Millisecond || pause > 5500*time.Millisecond {
				t.Errorf("it was asked again after %v", pause)
			}
		}
		if len(pauses) < 5 {
			t.Errorf("there are only %d different pauses", len(pauses))
		}
	})
}
