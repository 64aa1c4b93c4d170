// Tests of members that the source no longer lists while they have something to answer.

package peers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/peers"
)

// fading returns a circle of three members with slow loads, a key that the last owns, and two Gets of it under way at the others. drop takes the owner off
// their lists.
func fading(t *testing.T) (c *circle, key string, gets []<-chan answer, drop func()) {
	c = newCircle(t).slowly(10 * time.Second)
	var lists []*source
	for i := range 3 {
		list := dynamic(urls(3)...)
		lists = append(lists, list)
		c.join(urlOf(i), list)
	}
	key = c.members[0].keyOf(urlOf(2))
	gets = []<-chan answer{c.members[0].get(key), c.members[1].get(key)}
	time.Sleep(time.Second)
	return c, key, gets, func() {
		for _, list := range lists[:2] {
			list.change(peers.Peer{URL: urlOf(0)}, peers.Peer{URL: urlOf(1)})
		}
		synctest.Wait()
		for _, m := range c.members[:2] {
			m.wantState(urlOf(2), "no member")
		}
	}
}

// Contract: P4, P10
func TestMemberThatIsNoLongerListedAnswersWhatItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, key, gets, drop := fading(t)
		drop()
		for i, a := range gets {
			c.members[i].check(key, <-a, 10100*time.Millisecond)
		}
		c.wantLoads(key, urlOf(2))
		more := c.members[0].keysOf(ownerAmong("x", urls(2)...), 1)[0]
		c.members[0].must(more, 11*time.Second)
		time.Sleep(time.Second)
		if open, _ := c.net.open(addr(2)); open > 0 {
			t.Errorf("%d connections to it are open after its last answer", open)
		}
	})
}

// Contract: P10
func TestMemberThatLeftAndIsNoLongerListedAnswersWhatItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, key, gets, drop := fading(t)
		if err := c.members[2].pool.Leave(t.Context()); err != nil {
			t.Error(err)
		}
		drop()
		for i, a := range gets {
			c.members[i].check(key, <-a, 10100*time.Millisecond)
		}
		c.wantLoads(key, urlOf(2))
	})
}

// Contract: P3, P4
func TestMemberThatIsNoLongerListedAndDiesIsReplaced(t *testing.T) {
	for name, die := range map[string]func(c *circle){
		"connections break": func(c *circle) { c.net.kill(addr(2)) },
		"silence":           func(c *circle) { c.net.darken(addr(2)) },
		"another in its place": func(c *circle) {
			c.net.kill(addr(2))
			c.joinAt("http://another:1", addr(2), dynamic("http://another:1"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, key, gets, drop := fading(t)
				drop()
				time.Sleep(time.Second)
				die(c)
				next := ownerAmong(key, urls(2)...)
				for i, a := range gets {
					c.members[i].check(key, <-a, 15*time.Second)
				}
				if name != "another in its place" { // which was asked before it said who it is
					c.wantLoads(key, urlOf(2), next)
				}
				if name == "silence" {
					c.net.lighten(addr(2))
				}
			})
		})
	}
}

// Contract: P6
func TestMemberWhoseAddressChangesAnswersWhatItWasAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second)
		lists := make([]*source, 2)
		for i := range lists {
			lists[i] = dynamic()
			lists[i].set = []peers.Peer{{ID: "a", URL: urlOf(0)}, {ID: "b", URL: urlOf(1)}}
			c.cfg.ID = []string{"a", "b"}[i]
			c.join(urlOf(i), lists[i])
		}
		m := c.members[0]
		keys := m.keysOf("b", 2)
		a := m.get(keys[0])
		time.Sleep(time.Second)
		moved := c.net.listen("moved:1")
		go func() { _ = c.members[1].pool.Serve(moved) }()
		lists[0].change(peers.Peer{ID: "a", URL: urlOf(0)}, peers.Peer{ID: "b", URL: "http://moved:1"})
		synctest.Wait()
		m.must(keys[1], 10100*time.Millisecond)
		m.check(keys[0], <-a, 10100*time.Millisecond)
		c.wantLoads(keys[0], urlOf(1))
		c.wantLoads(keys[1], urlOf(1))
	})
}
