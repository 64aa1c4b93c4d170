// Tests of how a member leaves, and of what becomes of those who wait for it.

package peers_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// Contract: P10
func TestLeavingMemberAnswersWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(5 * time.Second).start(4)
		leaver := c.members[3]
		keys := leaver.keysOf(urlOf(3), 30)
		var all []<-chan answer
		for _, key := range keys {
			for _, m := range c.members {
				all = append(all, m.get(key))
			}
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := leaver.mesh.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		for i, a := range all {
			c.members[i%4].check(keys[i/4], <-a, 5200*time.Millisecond)
		}
		for _, key := range keys {
			c.wantLoads(key, urlOf(3))
		}
	})
}

// Contract: P10
func TestLeavingMemberAnswersWhatWasInvalidatedInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(5 * time.Second).start(3)
		leaver := c.members[2]
		key := leaver.keyOf(urlOf(2))
		a := c.members[0].get(key)
		time.Sleep(time.Second)
		if err := c.members[1].Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := leaver.mesh.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
		c.members[0].check(key, <-a, 5100*time.Millisecond)
		c.wantLoads(key, urlOf(2))
	})
}

// Contract: P10
func TestLeavingMemberOwnsNothingFromTheMomentItSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(4)
		leaver := c.members[3]
		keys := leaver.keysOf(urlOf(3), 50)
		for _, m := range c.members[:3] {
			m.must(keys[0], time.Second) // it knows the leaver
		}
		if err := leaver.pool.Leave(t.Context()); err != nil {
			t.Errorf("Leave: %v", err)
		}
		time.Sleep(5 * time.Second) // it still answers pings
		for _, m := range c.members {
			m.wantState(urlOf(3), "left")
			if owner := m.pool.Owner(group, keys[1]); owner == urlOf(3) {
				t.Errorf("%s believes that the leaver owns %q", m.url, keys[1])
			}
		}
		for i, key := range keys[1:] {
			c.members[i%4].must(key, 10*time.Millisecond) // the leaver goes on asking
			c.wantLoads(key, urlOf(deputyOf(4, key)))
		}
	})
}

// Contract: P10
func TestMemberThatRunsOutOfTimeHandsItsLoadsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(30 * time.Second).start(3)
		leaver := c.members[2]
		key := leaver.keyOf(urlOf(2))
		a, b := c.members[0].get(key), c.members[1].get(key)
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_ = leaver.mesh.Close(ctx)
		c.members[0].check(key, <-a, 40*time.Second)
		c.members[1].check(key, <-b, 40*time.Second)
		c.wantLoads(key, urlOf(2), urlOf(deputyOf(3, key)))
	})
}

// Contract: P3, P10
func TestMemberThatDiesWhileItLeavesIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second).start(3)
		leaver := c.members[2]
		key := leaver.keyOf(urlOf(2))
		a, b := c.members[0].get(key), c.members[1].get(key)
		time.Sleep(time.Second)
		if err := leaver.pool.Leave(t.Context()); err != nil {
			t.Errorf("Leave: %v", err)
		}
		time.Sleep(time.Second)
		c.net.kill(addr(2))
		c.members[0].check(key, <-a, 15*time.Second)
		c.members[1].check(key, <-b, 15*time.Second)
		c.wantLoads(key, urlOf(2), urlOf(deputyOf(3, key)))
	})
}

// Contract: P4, P10
func TestMemberThatFallsSilentWhileItLeavesIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second).start(3)
		leaver := c.members[2]
		key := leaver.keyOf(urlOf(2))
		a := c.members[0].get(key)
		time.Sleep(time.Second)
		if err := leaver.pool.Leave(t.Context()); err != nil {
			t.Errorf("Leave: %v", err)
		}
		time.Sleep(time.Second)
		c.net.darken(addr(2))
		c.members[0].check(key, <-a, 15*time.Second)
		c.wantLoads(key, urlOf(2), urlOf(deputyOf(3, key)))
		c.net.lighten(addr(2))
	})
}

// Contract: P10, P5
func TestMemberThatLeftIsBackOnceANewProcessAnswersInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(3)
		m, leaver := c.members[0], c.members[2]
		keys := m.keysOf(urlOf(2), 3)
		m.must(keys[0], time.Second)
		if err := leaver.mesh.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		m.wantState(urlOf(2), "left")
		m.must(keys[1], 10*time.Millisecond)
		time.Sleep(10 * time.Second)
		c.join(urlOf(2), staticOf(3))
		time.Sleep(time.Second)
		m.wantState(urlOf(2), "alive")
		m.must(keys[2], 10*time.Millisecond)
		c.wantLoads(keys[2], urlOf(2))
	})
}

// Contract: P6, P10
func TestLateNewsOfAnOldProcessChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(3)
		m, old := c.members[0], c.members[2]
		keys := m.keysOf(urlOf(2), 3)
		m.must(keys[0], time.Second)
		c.net.kill(addr(2))
		m.must(keys[1], 100*time.Millisecond)
		c.join(urlOf(2), staticOf(3))
		time.Sleep(time.Second)
		m.wantState(urlOf(2), "alive")
		_ = old.pool.Leave(t.Context()) // it says so only now
		m.wantState(urlOf(2), "alive")
		m.must(keys[2], 10*time.Millisecond)
		c.wantLoads(keys[2], urlOf(2))
	})
}

// Contract: P10
func TestCloseEndsEverythingThatThePoolStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a goroutine that outlives Close fails the bubble
		c := newCircle(t).slowly(time.Minute).start(3)
		var waiting []<-chan answer
		for i := range 50 {
			waiting = append(waiting, c.members[i%3].get(fmt.Sprint("key ", i)))
		}
		time.Sleep(time.Second)
		for _, m := range c.members {
			m.close()
			if err := m.pool.Close(t.Context()); err != nil {
				t.Errorf("second Close: %v", err)
			}
		}
		for _, a := range waiting {
			<-a
		}
		for i := range 3 {
			if open, _ := c.net.open(addr(i)); open > 0 {
				t.Errorf("%d connections to %s are open after Close", open, addr(i))
			}
		}
		if _, err := c.members[0].Get(t.Context(), "key"); err != onefill.ErrClosed {
			t.Errorf("Get after Close: %v", err)
		}
		if err := c.members[0].pool.Serve(c.net.listen("again:1")); err == nil {
			t.Error("Serve after Close serves")
		}
	})
}

// Contract: P6
func TestPoolServesOneMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(1)
		if _, err := onefill.New(onefill.Config{Namespace: "test", Peers: c.members[0].pool}); err == nil {
			t.Error("a pool joined two meshes")
		}
		p, err := peers.NewPool("http://127.0.0.1:1", peers.Static("http://127.0.0.1:1"), peers.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(t.Context()); err != nil {
			t.Errorf("a pool that belongs to no mesh cannot be closed: %v", err)
		}
		if _, err := onefill.New(onefill.Config{Namespace: "test", Peers: p}); err == nil {
			t.Error("a closed pool joined a mesh")
		}
	})
}
