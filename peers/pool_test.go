// Tests of pools whose members do not agree: on who they are, on who owns a key, on the groups that there are.

package peers_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// Contract: P1
func TestMembersLearnedInAnyOrderHaveTheSameOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		a, b, x := urlOf(0), urlOf(1), urlOf(2)
		for i, list := range [][]string{{a, b, x}, {x, a, b}, {b, b, x, a, "http://M0.:7946/"}} {
			c.join(urlOf(i), dynamic(list...))
		}
		for _, m := range c.members {
			if err := m.mesh.Ready(t.Context()); err != nil {
				t.Error(err)
			}
		}
		for i := range 1000 {
			key := fmt.Sprintf("user:%d", i)
			owner := c.members[0].pool.Owner(group, key)
			for _, m := range c.members[1:] {
				if other := m.pool.Owner(group, key); other != owner {
					t.Errorf("%s owns %q at one, %s at another", owner, key, other)
				}
			}
		}
		for i := range 30 {
			key := fmt.Sprintf("user:%d", i)
			for _, m := range c.members {
				m.must(key, 10*time.Millisecond)
			}
			c.wantLoads(key, c.members[0].pool.Owner(group, key))
		}
	})
}

// Contract: R10
func TestProcessesThatEachThinkAnotherOwnsAKeyAllGetAValue(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		synctest.Test(t, func(t *testing.T) {
			c := newCircle(t).slowly(100 * time.Millisecond)
			for i := range n { // each knows only the next, who knows only the one after
				c.join(urlOf(i), dynamic(urlOf((i+1)%n)))
			}
			var all []<-chan answer
			for _, m := range c.members {
				all = append(all, m.get("key"))
			}
			for i, a := range all {
				c.members[i].check("key", <-a, time.Second)
			}
		})
	}
}

// Contract: R10
func TestRequestOfAPeerIsNeverForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.join(urlOf(0), dynamic(urlOf(1)))
		c.join(urlOf(1), dynamic(urlOf(2)))
		c.join(urlOf(2), dynamic(urlOf(2)))
		c.members[0].must("key", 10*time.Millisecond)
		c.wantLoads("key", urlOf(1))
	})
}

// Contract: P6
func TestProcessThatADynamicListLacksIsAGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		for i := range 2 {
			c.join(urlOf(i), dynamic(urls(2)...))
		}
		guest := c.join("http://guest:7946", dynamic(urls(2)...))
		nameless := c.join("", dynamic(urls(2)...))
		for i := range 50 {
			key := fmt.Sprintf("user:%d", i)
			guest.must(key, 10*time.Millisecond)
			nameless.must(key, 10*time.Millisecond)
			c.wantLoads(key, c.members[0].pool.Owner(group, key))
		}
		guest.wantState(guest.url, "guest")
		if len(c.log.lines("does not list this process")) > 0 {
			t.Error("warned at once")
		}
		time.Sleep(31 * time.Second)
		if n := len(c.log.lines("does not list this process", "guest:7946")); n != 1 { // the nameless one wants to be a guest
			t.Errorf("warned %d times, want once", n)
		}
		if n := len(c.log.lines("does not list this process")); n != 1 {
			t.Errorf("%d warnings in all, want one", n)
		}
	})
}

// Contract: P6
func TestProcessWithAnEmptyListStartsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		src := dynamic()
		m := c.join(urlOf(0), src)
		m.must("before", 10*time.Millisecond)
		c.wantLoads("before", urlOf(0))
		c.join(urlOf(1), dynamic(urls(2)...))
		src.change(peers.Peer{URL: urlOf(0)}, peers.Peer{URL: urlOf(1)})
		synctest.Wait()
		key := m.keyOf(urlOf(1))
		m.must(key, 10*time.Millisecond)
		c.wantLoads(key, urlOf(1))
	})
}

// Contract: P6
func TestOtherSpellingOfThisProcessIsRecognisedOnFirstContact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		m := c.build("http://127.0.0.1:7946", dynamic("http://localhost:7946", urlOf(1)))
		g, err := onefill.NewGroup(m.mesh, group, m.load)
		if err != nil {
			t.Fatal(err)
		}
		m.Group = g
		m.serveAt("localhost:7946")
		c.join(urlOf(1), dynamic(urlOf(1)))
		keys := m.keysOf("http://localhost:7946", 5)
		for _, key := range keys {
			m.must(key, 100*time.Millisecond) // never a question to itself that hangs
		}
		m.wantState("http://localhost:7946", "misconfigured")
		err = m.mesh.Ready(t.Context())
		if err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:7946") || !strings.Contains(err.Error(), "http://localhost:7946") {
			t.Errorf("Ready: %v, want both spellings", err)
		}
		if len(c.log.lines("127.0.0.1", "localhost")) == 0 {
			t.Error("no line names both spellings")
		}
	})
}

// Contract: P6
func TestMemberThatAnswersUnderAnotherIDIsMisconfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		list := []peers.Peer{{ID: "pod-0", URL: urlOf(0)}, {ID: "pod-1", URL: urlOf(1)}}
		for i := range 2 {
			c.cfg.ID = []string{"pod-0", "pod-x"}[i]
			src := dynamic()
			src.set = list
			c.join(urlOf(i), src)
		}
		m := c.members[0]
		keys := m.keysOf("pod-1", 2)
		m.must(keys[0], 100*time.Millisecond)
		if got := c.loadsOf(keys[0]); len(got) == 0 || got[len(got)-1] != urlOf(0) { // it may take an answer to show who it is
			t.Errorf("loaded at %v", got)
		}
		m.must(keys[1], 100*time.Millisecond)
		c.wantLoads(keys[1], urlOf(0))
		m.wantState("pod-1", "misconfigured")
		if err := m.mesh.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "pod-1") || !strings.Contains(err.Error(), "pod-x") {
			t.Errorf("Ready: %v, want both names", err)
		}
	})
}

// Contract: P6
func TestChangedAddressKeepsTheKeysOfAnID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		list := func(last string) []peers.Peer {
			return []peers.Peer{{ID: "pod-0", URL: urlOf(0)}, {ID: "pod-1", URL: last}}
		}
		var sources []*source
		for i := range 2 {
			c.cfg.ID = fmt.Sprintf("pod-%d", i)
			src := dynamic()
			src.set = list(urlOf(1))
			sources = append(sources, src)
			c.join(urlOf(i), src)
		}
		m := c.members[0]
		keys := m.keysOf("pod-1", 2)
		m.must(keys[0], time.Second)
		c.net.kill(addr(1))
		c.members[1].serveAt("elsewhere:7946")
		sources[0].change(list("http://elsewhere:7946")...)
		synctest.Wait()
		m.must(keys[1], 100*time.Millisecond)
		c.wantLoads(keys[1], urlOf(1))
	})
}

// Contract: P7
func TestGroupThatOnlySomeProcessesHaveIsLoadedByThose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		for i := range 2 {
			c.join(urlOf(i), staticOf(3))
		}
		c.build(urlOf(2), staticOf(3)).serve() // has no group
		for _, key := range c.members[0].keysOf(urlOf(2), 30) {
			for _, m := range c.members[:2] {
				m.must(key, 100*time.Millisecond)
			}
			c.wantLoads(key, urlOf(deputyOf(3, key)))
		}
		c.members[0].wantState(urlOf(2), "alive")
	})
}

// Contract: P7
func TestPeerWithAnotherVersionOfAGroupNeitherGivesNorTakesValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		for i, version := range []string{"1", "1", "2"} {
			c.join(urlOf(i), staticOf(3), onefill.Version(version))
		}
		for _, key := range c.members[0].keysOf(urlOf(2), 30) {
			c.members[0].must(key, 100*time.Millisecond)
			c.members[1].must(key, 100*time.Millisecond)
			c.wantLoads(key, urlOf(deputyOf(3, key)))
		}
		key := c.members[0].keyOf(urlOf(0))
		c.members[2].must(key, 100*time.Millisecond)
		c.wantLoads(key, urlOf(2))
	})
}

// Contract: P15
func TestProcessOfAnotherNamespaceIsRefusedAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		m := c.join(urlOf(0), staticOf(2))
		other, err := peers.NewPool(urlOf(1), staticOf(2), func() peers.Config { cfg := c.cfg; cfg.Dial = c.net.dial; return cfg }())
		if err != nil {
			t.Fatal(err)
		}
		mesh, err := onefill.New(onefill.Config{Namespace: "another", Peers: other, Logger: c.cfg.Logger})
		if err != nil {
			t.Fatal(err)
		}
		l := c.net.listen(addr(1))
		go func() { _ = other.Serve(l) }()
		t.Cleanup(func() { _ = mesh.Close(t.Context()) })
		key := m.keyOf(urlOf(1))
		m.must(key, 100*time.Millisecond)
		c.wantLoads(key, urlOf(0))
		m.wantState(urlOf(1), "misconfigured")
		if err := m.mesh.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "another") || !strings.Contains(err.Error(), "test") {
			t.Errorf("Ready: %v, want both namespaces", err)
		}
	})
}

// Contract: S1
func TestPoolThatAnyoneCouldJoinIsRefused(t *testing.T) {
	secret := strings.Repeat("s", 32)
	for _, test := range []struct {
		self string
		cfg  peers.Config
		ok   bool
	}{
		{"http://10.0.0.3:7946", peers.Config{}, false},
		{"http://users.example:7946", peers.Config{}, false},
		{"http://[2001:db8::1]:7946", peers.Config{}, false},
		{"http://10.0.0.3:7946", peers.Config{Insecure: true}, true},
		{"http://127.0.0.1:7946", peers.Config{}, true},
		{"http://[::1]:7946", peers.Config{}, true},
		{"https://10.0.0.3:7946", peers.Config{Secrets: []string{secret}}, true},
		{"http://10.0.0.3:7946", peers.Config{Secrets: []string{secret}}, false}, // it would speak https
		{"https://127.0.0.1:7946", peers.Config{}, false},                        // it would speak http
		{"https://10.0.0.3:7946", peers.Config{Secrets: []string{"short"}}, false},
	} {
		_, err := peers.NewPool(test.self, peers.Static(test.self), test.cfg)
		if (err == nil) != test.ok {
			t.Errorf("NewPool(%q, %+v): %v", test.self, test.cfg, err)
		}
	}
}

func TestWrongSettingIsNamedWithItsValue(t *testing.T) {
	self := "http://127.0.0.1:7946"
	for _, test := range []struct {
		self string
		src  peers.Source
		cfg  peers.Config
		want []string
	}{
		{"127.0.0.1:7946", peers.Static(self), peers.Config{}, []string{"self", "127.0.0.1:7946"}},
		{"", peers.Static(self), peers.Config{}, []string{"self", "empty"}},
		{self, nil, peers.Config{}, []string{"source"}},
		{self, peers.Static("http://127.0.0.1:1"), peers.Config{}, []string{self, "http://127.0.0.1:1"}},
		{self, peers.Static(self), peers.Config{PeerSilence: time.Millisecond}, []string{"PeerSilence", "1ms"}},
		{self, peers.Static(self), peers.Config{PeerSilence: -1}, []string{"PeerSilence", "-1ns"}},
		{self, peers.Static(self), peers.Config{MaxPending: -7}, []string{"MaxPending", "-7"}},
		{self, peers.Static(self), peers.Config{ID: "pod-1"}, []string{"Config.ID", "pod-1"}},
		{self, peers.Static(self), peers.Config{ID: strings.Repeat("x", 256)}, []string{"Config.ID", "256"}},
	} {
		_, err := peers.NewPool(test.self, test.src, test.cfg)
		if err == nil {
			t.Errorf("NewPool(%q, %+v) succeeds", test.self, test.cfg)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not name %q", err, want)
			}
		}
		if !strings.HasPrefix(err.Error(), "peers: ") {
			t.Errorf("error %q does not say whose it is", err)
		}
	}
}

// Contract: P6
func TestFixedListWithoutThisProcessIsRefusedAndEachSpellingShown(t *testing.T) {
	_, err := peers.NewPool("http://127.0.0.1:7946", peers.Static("http://localhost:7946", "http://127.0.0.1:7947"), peers.Config{})
	if err == nil || !strings.Contains(err.Error(), "http://127.0.0.1:7946") || !strings.Contains(err.Error(), "http://localhost:7946") {
		t.Errorf("error %v, want both spellings", err)
	}
	if _, err := peers.NewPool("", peers.Static("http://localhost:7946"), peers.Config{Guest: true}); err != nil {
		t.Errorf("a guest: %v", err)
	}
}

// Contract: P6
func TestFailingSourceKeepsTheLastMembersAndIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		src := &failing{source: dynamic(urls(2)...)}
		m := c.join(urlOf(0), src)
		c.join(urlOf(1), staticOf(2))
		time.Sleep(time.Minute)
		m.wantState(urlOf(1), "alive")
		if n := src.calls.Load(); n < 3 || n > 20 {
			t.Errorf("asked %d times in a minute", n)
		}
		if len(c.log.lines(errSource.Error())) == 0 {
			t.Error("not a word about the failure")
		}
		key := m.keyOf(urlOf(1))
		m.must(key, 100*time.Millisecond)
		c.wantLoads(key, urlOf(1))
	})
}

// failing is a source that tells its members once and then fails.
type failing struct {
	*source
	calls atomic.Int64
}

func (f *failing) Watch(_ context.Context, set func([]peers.Peer)) error {
	if f.calls.Add(1) == 1 {
		set(f.set)
	}
	return errSource
}
