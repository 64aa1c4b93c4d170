// This file checks the locks against what they promise, over random schedules in fake time with lost replies, lost requests, delays, holders that do not
// look at their context, and leases that expire. The bench/mutants patches show that it can fail.

package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"pgregory.net/rapid"

	"github.com/onefill/onefill/lock"
)

const (
	modelTTL     = time.Second
	modelPermits = 2
)

// A plan is one schedule: what each process does, and what its network does to it.
type (
	plan    struct{ processes []process }
	process struct {
		steps  []step
		faults []fault
	}
	step struct {
		what     string
		after    time.Duration // since the step before
		patience time.Duration // how long it waits for the lock
		hold     time.Duration
		absent   bool // it does not look at its context while it holds
	}
	fault struct {
		what  string
		at    time.Duration
		lasts time.Duration
	}
)

// The steps of a plan are of one kind, so that they meet.
var modelSteps = [][]string{{"lock", "trylock"}, {"rlock", "wlock", "upgrade", "downgrade"}, {"acquire"}}

func drawPlan(t *rapid.T, faulty bool) (p plan) {
	ms := func(name string, most int) time.Duration {
		return time.Duration(rapid.IntRange(0, most).Draw(t, name)) * time.Millisecond
	}
	steps := rapid.SampledFrom(modelSteps).Draw(t, "kind")
	for range rapid.IntRange(2, 4).Draw(t, "processes") {
		var one process
		for range rapid.IntRange(1, 5).Draw(t, "steps") {
			one.steps = append(one.steps, step{
				what: rapid.SampledFrom(steps).Draw(t, "what"), after: ms("after", 500), patience: ms("patience", 4000),
				hold: ms("hold", 2500), absent: rapid.Bool().Draw(t, "absent"),
			})
		}
		if faulty {
			for range rapid.IntRange(0, 3).Draw(t, "faults") {
				one.faults = append(one.faults, fault{
					what: rapid.SampledFrom([]string{"deaf", "cut", "slow"}).Draw(t, "fault"), at: ms("at", 6000), lasts: ms("lasts", 2000),
				})
			}
		}
		p.processes = append(p.processes, one)
	}
	return p
}

// claim is a lease as the referee sees it.
type claim struct {
	who   string
	kind  string // mutex, reader, writer, permit
	lease *lock.Lease
	fence uint64
}

// referee watches all processes at once: in a bubble, that is possible.
type referee struct {
	mu      sync.Mutex // guards everything below
	began   time.Time
	holds   map[*claim]struct{}
	highest map[string]uint64 // the highest fence granted, by what excludes each other
	granted int
	faults  []string
}

func newReferee() *referee {
	return &referee{began: time.Now(), holds: make(map[*claim]struct{}), highest: make(map[string]uint64)}
}

func (r *referee) complain(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf("%v: ", time.Since(r.began))+fmt.Sprintf(format, args...))
}

// valid reports whether the holder may rely on its lease.
func (c *claim) valid() bool {
	return c.lease.Context().Err() == nil && time.Now().Before(c.lease.Expires())
}

// grants notes a lease and complains where it stands beside one that it excludes, or has a fence that is too low.
func (r *referee) grants(c *claim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.granted++
	c.fence = c.lease.Fence()
	if !c.valid() {
		return // it took longer to come than it lasts
	}
	permits := 0
	for other := range r.holds {
		if !other.valid() {
			continue
		}
		pair := c.kind + " " + other.kind
		switch pair {
		case "mutex mutex", "writer writer", "reader writer", "writer reader":
			r.complain("%s: %s beside %s of %s", c.who, c.kind, other.kind, other.who)
		case "permit permit":
			permits++
		}
	}
	if permits >= modelPermits {
		r.complain("%s: permit beside %d others", c.who, permits)
	}
	// What excludes all others must have a higher fence than all before; a reader a higher one than the writers before.
	group := map[string]string{"mutex": "mutex", "writer": "rw", "reader": "rw"}[c.kind]
	if c.kind != "reader" && group != "" && c.fence <= r.highest[group] {
		r.complain("%s: %s with fence %d after %d", c.who, c.kind, c.fence, r.highest[group])
	}
	if c.kind == "reader" && c.fence <= r.highest["writers"] {
		r.complain("%s: reader with fence %d after a writer's %d", c.who, c.fence, r.highest["writers"])
	}
	if c.kind == "writer" {
		r.highest["writers"] = max(r.highest["writers"], c.fence)
	}
	r.highest[group] = max(r.highest[group], c.fence)
	r.holds[c] = struct{}{}
}

// changes notes that a holder is about to hold something less, or nothing.
func (r *referee) changes(c *claim, kind string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if kind == "" {
		delete(r.holds, c)
		return
	}
	c.kind = kind
}

// run plays the plan and returns what the referee complained about.
func (p plan) run(client func(n *network) (*lock.Client, func())) *referee {
	r := newReferee()
	defer time.Sleep(time.Minute) // what is on its way arrives: a bubble's time ends with its first goroutine
	var all sync.WaitGroup
	for i, one := range p.processes {
		n := &network{}
		defer n.close()
		c, done := client(n)
		defer done()
		all.Go(func() {
			for j, s := range one.steps {
				time.Sleep(s.after)
				s.run(c, r, fmt.Sprintf("process %d step %d (%s)", i, j, s.what))
			}
		})
		for _, f := range one.faults {
			all.Go(func() { f.run(n) })
		}
	}
	all.Wait()
	return r
}

func (f fault) run(n *network) {
	time.Sleep(f.at)
	until := time.Now().Add(f.lasts)
	n.set(func(n *network) {
		switch f.what {
		case "deaf":
			n.deaf = until
		case "cut":
			n.cut = until
		case "slow":
			n.delay = f.lasts / 10
		}
	})
	time.Sleep(f.lasts)
	n.set(func(n *network) { n.delay = 0 })
}

// run takes the step's lock, holds it as the step says, and gives it back.
func (s step) run(c *lock.Client, r *referee, who string) {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	defer cancel()
	ttl := lock.TTL(modelTTL)
	rw := c.RWMutex("n", ttl)
	take, kind := map[string]func(context.Context) (*lock.Lease, error){
		"lock": c.Mutex("n", ttl).Lock, "trylock": c.Mutex("n", ttl).TryLock, "rlock": rw.RLock, "upgrade": rw.RLock, "wlock": rw.Lock, "downgrade": rw.Lock,
		"acquire": c.Semaphore("n", modelPermits, ttl).Acquire,
	}[s.what], map[string]string{
		"lock": "mutex", "trylock": "mutex", "rlock": "reader", "upgrade": "reader", "wlock": "writer", "downgrade": "writer", "acquire": "permit",
	}[s.what]
	l, err := take(ctx)
	if err != nil {
		return
	}
	held := &claim{who: who, kind: kind, lease: l}
	r.grants(held)
	s.stay(l)
	switch s.what {
	case "upgrade":
		if l.Upgrade(ctx) == nil {
			r.changes(held, "")
			held = &claim{who: who + " upgraded", kind: "writer", lease: l}
			r.grants(held)
			s.stay(l)
		}
	case "downgrade":
		r.changes(held, "reader")
		if l.Downgrade(ctx) == nil {
			s.stay(l)
		}
	}
	r.changes(held, "")
	_ = l.Release(context.Background())
}

func (s step) stay(l *lock.Lease) {
	if s.absent {
		time.Sleep(s.hold)
		return
	}
	select {
	case <-l.Context().Done():
	case <-time.After(s.hold):
	}
}

// Contract: K1, K6, K8
func TestNoScheduleBreaksThePromisesOverRedis(t *testing.T) {
	granted := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt, true)
		var r *referee
		synctest.Test(t, func(t *testing.T) {
			server := miniredis.NewMiniRedis()
			server.ClockTTL(true)
			defer server.Close()
			w := &world{t: t, server: server}
			r = p.run(func(n *network) (*lock.Client, func()) {
				c, _, done := w.clientOver(w.rdb(n), lock.Config{Timeout: 200 * time.Millisecond})
				return c, done
			})
		})
		granted += r.granted
		for _, f := range r.faults {
			rt.Errorf("%s", f)
		}
	})
	t.Logf("%d leases", granted)
}

// Contract: K1, K6, K8
func TestNoScheduleBreaksThePromisesOfLocal(t *testing.T) {
	granted := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt, false)
		var r *referee
		synctest.Test(t, func(*testing.T) {
			c := lock.Local()
			defer func() { _ = c.Close() }()
			r = p.run(func(*network) (*lock.Client, func()) { return c, func() {} })
		})
		granted += r.granted
		for _, f := range r.faults {
			rt.Errorf("%s", f)
		}
	})
	t.Logf("%d leases", granted)
}
