// Tests of what a process keeps that the others do not know: nobody would tell it what is invalidated.

package peers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// Contract: P6, I1
func TestProcessIsListedWhereTheOthersKnowItOrThereAreNone(t *testing.T) {
	for name, tc := range map[string]struct {
		self string
		list []string
		cfg  peers.Config
		want bool
	}{
		"among others":       {self: urlOf(0), list: urls(2), want: true},
		"alone":              {self: urlOf(0), list: urls(1), want: true},
		"an empty list":      {self: urlOf(0), want: true},
		"a list without it":  {self: urlOf(2), list: urls(2)},
		"a guest":            {list: urls(2), cfg: peers.Config{Guest: true}},
		"a guest in a list":  {self: urlOf(0), list: urls(2), cfg: peers.Config{Guest: true}},
		"a guest of nobody":  {cfg: peers.Config{Guest: true}},
		"others under an ID": {self: urlOf(0), list: urls(1), cfg: peers.Config{ID: "elsewhere"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCircle(t)
				c.cfg.Guest, c.cfg.ID = tc.cfg.Guest, tc.cfg.ID
				m := c.join(tc.self, dynamic(tc.list...))
				if got := m.pool.Listed(); got != tc.want {
					t.Errorf("Listed() = %v", got)
				}
			})
		})
	}
}

// Contract: P6, I1
func TestProcessThatLosesItsListingDropsWhatItKeepsAndKeepsNothingUntilItIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.join(urlOf(0), dynamic(urls(2)...))
		list := dynamic(urls(2)...)
		m := c.join(urlOf(1), list)
		own, other := m.keyOf(urlOf(1)), m.keyOf(urlOf(0))
		keeps := func() (n int) {
			for _, key := range []string{own, other} {
				m.must(key, time.Second)
				if _, ok := m.Peek(key); ok {
					n++
				}
			}
			return n
		}
		if n := keeps(); n != 2 {
			t.Errorf("a member keeps %d of 2 values", n)
		}
		list.change(peers.Peer{URL: urlOf(0)})
		synctest.Wait()
		for _, key := range []string{own, other} {
			if _, ok := m.Peek(key); ok {
				t.Errorf("%q is still there", key)
			}
		}
		if n := keeps(); n != 0 || m.pool.Listed() {
			t.Errorf("a guest keeps %d values; listed: %v", n, m.pool.Listed())
		}
		list.change(peers.Peer{URL: urlOf(0)}, peers.Peer{URL: urlOf(1)})
		synctest.Wait()
		if n := keeps(); n != 2 || !m.pool.Listed() {
			t.Errorf("back as a member it keeps %d of 2 values; listed: %v", n, m.pool.Listed())
		}
	})
}

// Contract: I1, I9
func TestProcessThatHasLeftKeepsNothingNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(2)
		m := c.members[1]
		if err := m.pool.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		m.must("key", time.Second)
		if err := c.members[0].Delete(t.Context(), "key"); err != nil {
			t.Error(err)
		}
		if _, ok := m.Peek("key"); ok || m.pool.Listed() {
			t.Error("it has a value that nobody told it to drop")
		}
	})
}

var _ onefill.Peers = (*peers.Pool)(nil)
