package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/onefill/onefill/lock"
)

// Contract: K4
func TestALostReplyToALockIsRecognisedAsOnesOwn(t *testing.T) {
	for what, take := range takers {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				n := &network{}
				c, _, done := w.clientOver(w.rdb(n), lock.Config{})
				defer done()
				first := must(w.t)(take(c)(w.t.Context())) // so that the server knows the script
				want(w.t, first.Release(w.t.Context()), nil)
				time.Sleep(time.Millisecond)
				n.set(func(n *network) { n.swallows = 1 })
				began := time.Now()
				l := must(w.t)(take(c)(w.t.Context()))
				if n.swallows != 0 {
					w.t.Fatal("no reply was lost")
				}
				if took := time.Since(began); took > time.Millisecond {
					w.t.Fatalf("took %v", took)
				}
				want(w.t, l.Release(w.t.Context()), nil)
			})
		})
	}
}

// takers are the ways to a lease.
var takers = map[string]func(*lock.Client) func(context.Context) (*lock.Lease, error){
	"Lock":       func(c *lock.Client) func(context.Context) (*lock.Lease, error) { return c.Mutex("m").Lock },
	"RLock":      func(c *lock.Client) func(context.Context) (*lock.Lease, error) { return c.RWMutex("m").RLock },
	"RW Lock":    func(c *lock.Client) func(context.Context) (*lock.Lease, error) { return c.RWMutex("m").Lock },
	"TryAcquire": func(c *lock.Client) func(context.Context) (*lock.Lease, error) { return c.Semaphore("m", 1).TryAcquire },
}

// Contract: K2
func TestALockThatIsCancelledWhileItsReplyIsOnTheWayIsGivenBack(t *testing.T) {
	for what, take := range takers {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				n := &network{}
				c, _, done := w.clientOver(w.rdb(n), lock.Config{})
				defer done()
				first := must(w.t)(take(c)(w.t.Context())) // so that the server knows the script
				want(w.t, first.Release(w.t.Context()), nil)
				time.Sleep(time.Millisecond)
				n.set(func(n *network) { n.delay = 200 * time.Millisecond })
				began := time.Now()
				_, err := take(c)(within(w.t, 50*time.Millisecond))
				want(w.t, err, context.DeadlineExceeded)
				if took := time.Since(began); took != 50*time.Millisecond {
					w.t.Fatalf("took %v", took)
				}
				n.set(func(n *network) { n.delay = 0 })
				time.Sleep(time.Second) // a tenth of the TTL
				other, _, closeOther := w.redisClient(lock.Config{})
				defer closeOther()
				l := must(w.t)(take(other)(within(w.t, time.Nanosecond)))
				want(w.t, l.Release(w.t.Context()), nil)
			})
		})
	}
}

// Contract: K5
func TestAServerThatDoesNotAnswerCostsTheTimeoutAndNoMore(t *testing.T) {
	inFakeTime(t, func(w *world) {
		n := &network{}
		c, rdb, done := w.clientOver(w.rdb(n), lock.Config{Timeout: 300 * time.Millisecond})
		defer done()
		want(w.t, rdb.Ping(w.t.Context()).Err(), nil)
		n.set(func(n *network) { n.cut = time.Now().Add(time.Minute) })
		began := time.Now()
		_, err := c.Mutex("m").Lock(w.t.Context())
		want(w.t, err, lock.ErrUnavailable)
		if took := time.Since(began); took != 300*time.Millisecond {
			w.t.Fatalf("took %v", took)
		}
	})
}

// Contract: K1
func TestALeaseCountsFromTheRequestAndNotFromALateReply(t *testing.T) {
	inFakeTime(t, func(w *world) {
		n := &network{}
		c, rdb, done := w.clientOver(w.rdb(n), lock.Config{})
		defer done()
		want(w.t, rdb.Ping(w.t.Context()).Err(), nil)
		time.Sleep(time.Millisecond)
		n.set(func(n *network) { n.delay = 200 * time.Millisecond })
		const span = 3*time.Second - 32*time.Millisecond // the TTL without 1 % and 2 ms

		asked := time.Now()
		l := must(w.t)(c.Mutex("m", lock.TTL(3*time.Second)).Lock(w.t.Context()))
		if after := l.Expires().Sub(asked); after != span {
			w.t.Fatalf("expires %v after the question", after)
		}
		time.Sleep(time.Until(asked.Add(time.Second))) // a third of the TTL: it is being renewed
		renewed := time.Now()
		time.Sleep(500 * time.Millisecond) // the script is new to the server: two replies of 200 ms
		if after := l.Expires().Sub(renewed); after != span {
			w.t.Fatalf("expires %v after the renewal was sent", after)
		}
		checked := time.Now()
		want(w.t, l.Check(w.t.Context()), nil)
		if after := l.Expires().Sub(checked); after != span {
			w.t.Fatalf("expires %v after the check was sent", after)
		}
		want(w.t, l.Release(w.t.Context()), nil)
	})
}
