// Tests of who counts as dead and what that costs: slow peers, silent ones, dead ones, and those that come back.

package peers_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Contract: P4, R2
func TestLoadOfFortySecondsThroughAPeerIsOneLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(40 * time.Second).start(4)
		key := c.members[0].keyOf(urlOf(1))
		var all []<-chan answer
		for _, m := range c.members {
			for range 25 {
				all = append(all, m.get(key))
			}
		}
		for i, a := range all {
			c.members[i/25].check(key, <-a, 40*time.Second+100*time.Millisecond)
		}
		c.wantLoads(key, urlOf(1))
	})
}

// Contract: P4
func TestPeerThatIsAtWorkSaysSoUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newCircle(t).slowly(40*time.Second), &ledger{}
		c.wrap = l.around
		c.start(2)
		m := c.members[0]
		key := m.keyOf(urlOf(1))
		m.must(key, 41*time.Second)
		if n := l.requests() + l.other; n > 2 { // the question and the standing stream
			t.Errorf("%d requests for one value", n)
		}
	})
}

// Contract: P4
func TestPeerThatNeverAnswersCostsTwoSecondsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.net.mute(addr(2))
		for i := range 2 {
			c.join(urlOf(i), staticOf(3))
		}
		asker := c.members[0]
		keys := asker.keysOf(urlOf(2), 20)
		var all []<-chan answer
		for _, key := range keys[:10] {
			all = append(all, asker.get(key))
		}
		for i, a := range all {
			asker.check(keys[i], <-a, 2200*time.Millisecond)
		}
		asker.wantState(urlOf(2), "unreachable")
		for _, key := range keys[10:] { // the price is paid
			asker.must(key, 10*time.Millisecond)
		}
		if n := c.totalLoads(); n != 20 {
			t.Errorf("%d loads of 20 keys", n)
		}
	})
}

// Contract: P3, P4
func TestSilentOwnerAndSilentDeputyCostOneSilenceTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.net.mute(addr(1))
		c.net.mute(addr(2))
		c.join(urlOf(0), staticOf(3))
		c.members[0].must(c.members[0].keyOf(urlOf(2)), 2600*time.Millisecond)
	})
}

// Contract: P4
func TestSlowDeputyOfASilentOwnerIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second)
		silent := c.net.mute(addr(2))
		for i := range 2 {
			c.join(urlOf(i), staticOf(3))
		}
		asker := c.members[0]
		key := ""
		for _, k := range asker.keysOf(urlOf(2), 100) { // one whose deputy is the other living member
			if deputyOf(3, k) == 1 {
				key = k
				break
			}
		}
		asker.must(key, 12200*time.Millisecond)
		c.wantLoads(key, urlOf(1))
		_ = silent.Close()
	})
}

// Contract: P3
func TestDeadOwnerIsReplacedByTheNextInRank(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(500 * time.Millisecond).start(5)
		for _, m := range c.members { // all have spoken with the owner
			m.must(m.keyOf(urlOf(4)), time.Second)
		}
		survivors := c.members[:4]
		keys := survivors[0].keysOf(urlOf(4), 21)[1:]
		c.net.kill(addr(4))
		var all []<-chan answer
		for _, key := range keys {
			for _, m := range survivors {
				for range 25 {
					all = append(all, m.get(key))
				}
			}
		}
		for i, a := range all {
			survivors[i/25%4].check(keys[i/100], <-a, 700*time.Millisecond)
		}
		for _, key := range keys {
			c.wantLoads(key, urlOf(deputyOf(5, key)))
		}
	})
}

// Contract: P3, P4
func TestOwnerThatDiesInTheMiddleOfALoadCostsOneMoreLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second).start(4)
		key := c.members[0].keyOf(urlOf(3))
		var all []<-chan answer
		for _, m := range c.members[:3] {
			all = append(all, m.get(key), m.get(key))
		}
		time.Sleep(5 * time.Second)
		c.net.kill(addr(3))
		for i, a := range all {
			c.members[i/2].check(key, <-a, 15200*time.Millisecond)
		}
		c.wantLoads(key, urlOf(3), urlOf(deputyOf(4, key)))
	})
}

// Contract: P5
func TestRecoveredPeerIsBackWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(3)
		m := c.members[0]
		keys := m.keysOf(urlOf(2), 10)
		m.must(keys[0], time.Second)
		c.net.kill(addr(2))
		m.must(keys[1], 100*time.Millisecond)
		m.wantState(urlOf(2), "unreachable")
		time.Sleep(time.Minute)
		before := c.net.dialled(addr(2))
		for _, key := range keys[2:9] {
			m.must(key, 10*time.Millisecond)
		}
		if n := c.net.dialled(addr(2)) - before; n > 0 {
			t.Errorf("callers' fetches dialled the dead peer %d times", n)
		}
		c.members[2].serve()
		time.Sleep(time.Second)
		m.wantState(urlOf(2), "alive")
		m.must(keys[9], 100*time.Millisecond)
		c.wantLoads(keys[9], urlOf(2))
	})
}

// Contract: P5
func TestDeadPeerIsProbedByOnePingAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(2)
		m := c.members[0]
		m.must(m.keyOf(urlOf(1)), time.Second)
		c.net.darken(addr(1))
		m.must(m.keysOf(urlOf(1), 2)[1], 2200*time.Millisecond)
		m.wantState(urlOf(1), "unreachable")
		before := c.net.dialled(addr(1))
		time.Sleep(time.Minute)
		if n := c.net.dialled(addr(1)) - before; n < 10 || n > 30 { // each waits PeerSilence for an answer and half a second for the next
			t.Errorf("%d pings in a minute", n)
		}
		if open, _ := c.net.open(addr(1)); open > 1 {
			t.Errorf("%d connections to a dead peer", open)
		}
		c.net.lighten(addr(1))
		time.Sleep(time.Second)
		m.wantState(urlOf(1), "alive")
	})
}

// Contract: P4, P5
func TestConnectionThatIsLostSilentlyCostsTimeAndNoSecondLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(3)
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 60)
		m.must(keys[0], time.Second)
		for round := range 50 { // more often than there are places for requests
			c.net.lose(addr(1))
			first := m.get(keys[1+round])
			m.check(keys[1+round], <-first, 2200*time.Millisecond)
			m.wantState(urlOf(1), "alive")
		}
		m.must(keys[59], 10*time.Millisecond)
		for _, key := range append(keys[:51:51], keys[59]) {
			c.wantLoads(key, urlOf(1))
		}
	})
}

// Contract: P4
func TestStreamThatIsLostSilentlyCostsTimeAndNoSecondLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(20 * time.Second).start(3)
		m := c.members[0]
		key := m.keyOf(urlOf(1))
		a := m.get(key)
		time.Sleep(5 * time.Second)
		c.net.lose(addr(1))
		m.check(key, <-a, 20100*time.Millisecond) // a new stream carries the answer
		c.wantLoads(key, urlOf(1))
	})
}

// Contract: P4, R4
func TestCallerThatLeavesEndsItsOwnWaitAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(5 * time.Second).start(3)
		m := c.members[0]
		key := m.keyOf(urlOf(1))
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		others := []<-chan answer{m.get(key), c.members[2].get(key)}
		began := time.Now()
		if _, err := m.Get(ctx, key); err != context.DeadlineExceeded || time.Since(began) != 50*time.Millisecond {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
		for i, a := range others {
			c.members[2*i].check(key, <-a, 5100*time.Millisecond)
		}
		c.wantLoads(key, urlOf(1))
	})
}

// Contract: P3
func TestPoolOfOneSurvivorFillsEverythingItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(3)
		c.net.kill(addr(1))
		c.net.kill(addr(2))
		for i := range 20 {
			c.members[0].must(fmt.Sprint("key ", i), 10*time.Millisecond)
		}
	})
}
