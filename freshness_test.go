// What freshness promises inside one process: that nobody waits at expiry, what becomes of a value whose life is over, and how often a source that fails is
// asked again. What other processes see of it stands in freshness_pool_test.go, "not found" in notfound_test.go.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// agingSource is a source whose loads take what took says, fail while fails says so, and hang while hangs says so. It remembers when they began.
type agingSource struct {
	took func(n int) time.Duration // of load n, from 1; nil for none

	mu     sync.Mutex // guards what follows
	began  []time.Time
	active int
	most   int // that ran at once
	fails  error
	hangs  bool
}

func (s *agingSource) load(ctx context.Context, key string) (string, error) {
	s.mu.Lock()
	s.began = append(s.began, time.Now())
	n, fails, hangs := len(s.began), s.fails, s.hangs
	s.active++
	s.most = max(s.most, s.active)
	s.mu.Unlock()
	defer func() { s.mu.Lock(); s.active--; s.mu.Unlock() }()
	if hangs {
		<-ctx.Done()
		return "", ctx.Err()
	}
	if s.took != nil {
		select {
		case <-time.After(s.took(n)):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	if fails != nil {
		return "", fails
	}
	return fmt.Sprint(n), nil
}

// set makes loads that begin from now on fail, or hang.
func (s *agingSource) set(fails error, hangs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails, s.hangs = fails, hangs
}

func (s *agingSource) loads() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.began...)
}

// atOnce is how many loads ran at once at most since it was called last.
func (s *agingSource) atOnce() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	most := s.most
	s.most = s.active
	return most
}

// pauses are the times between the beginnings of loads, from load first on (from 0).
func (s *agingSource) pauses(first int) (all []time.Duration) {
	began := s.loads()
	for i := first; i+1 < len(began); i++ {
		all = append(all, began[i+1].Sub(began[i]))
	}
	return all
}

func takes(d time.Duration) func(int) time.Duration { return func(int) time.Duration { return d } }

var errDown = errors.New("the source is down")

// readFor reads key every pause for a time and returns the longest time that a read took. Every read must bring a value.
func readFor(t *testing.T, g *onefill.Group[string], key string, pause, length time.Duration) (longest time.Duration) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(pause) {
		began := time.Now()
		if _, err := g.Get(context.Background(), key); err != nil {
			t.Errorf("a read failed: %v", err)
		}
		longest = max(longest, time.Since(began))
	}
	return longest
}

// gets fails the test unless a Get brings want after the given time.
func gets(t *testing.T, g *onefill.Group[string], key, want string, after time.Duration) {
	t.Helper()
	began := time.Now()
	v, err := g.Get(context.Background(), key)
	if took := time.Since(began); v != want || err != nil || took != after {
		t.Errorf("got %q, %v after %v; want %q after %v", v, err, took, want, after)
	}
}

// rhythms are load durations that F9 covers: none is longer than one and a half times the one before.
var rhythms = map[string]func(longest time.Duration) func(n int) time.Duration{
	"steady": takes,
	"up down": func(d time.Duration) func(int) time.Duration {
		return func(n int) time.Duration { return d * time.Duration(2+n%2) / 3 }
	},
	"saw": func(d time.Duration) func(int) time.Duration {
		return func(n int) time.Duration { return time.Duration(float64(d) / math.Pow(1.5, float64(5-n%6))) }
	},
}

// shortest is the shortest load of a rhythm.
func shortest(took func(int) time.Duration) time.Duration {
	least := took(1)
	for n := range 6 {
		least = min(least, took(n+1))
	}
	return least
}

// Contract: F9, F3
func TestNobodyWaitsForALoadAfterTheFirst(t *testing.T) {
	for name, rhythm := range rhythms {
		for _, load := range []time.Duration{time.Millisecond, 450 * time.Millisecond} {
			for _, lives := range []time.Duration{4, 10} { // loads
				for _, opt := range []onefill.Option{onefill.Beta(1), onefill.Beta(0), onefill.Jitter(0)} {
					synctest.Test(t, func(t *testing.T) {
						ttl := lives*load + load/100
						src := &agingSource{took: rhythm(load)}
						g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(ttl), opt)
						if _, err := g.Get(t.Context(), "key"); err != nil {
							t.Fatal(err)
						}
						pause := shortest(src.took) / 10
						if wait := readFor(t, g, "key", pause, 20*ttl); wait > 0 {
							t.Errorf("%s loads of %v, a life of %v: a read waited for %v", name, load, ttl, wait)
						}
						if n := len(src.loads()); n < 15 {
							t.Errorf("%s loads of %v, a life of %v: %d loads in 20 lives", name, load, ttl, n)
						}
						if s := g.Stats(); s.Refreshes+1 < s.Loads-1 || s.Stale != 0 {
							t.Errorf("%d loads, %d refreshes, %d stale reads", s.Loads, s.Refreshes, s.Stale)
						}
						if n := src.atOnce(); n != 1 {
							t.Errorf("%d loads at once", n)
						}
					})
				}
			}
		}
	}
}

// Contract: F9
func TestReadersWithoutEarlyRefreshDoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // else the other tests of this kind prove nothing
		src := &agingSource{took: takes(slow)}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(5*slow), onefill.Beta(-1))
		if _, err := g.Get(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		if wait := readFor(t, g, "key", slow/10, 20*slow); wait < slow/2 {
			t.Errorf("the longest wait is %v", wait)
		}
		if s := g.Stats(); s.Refreshes != 0 {
			t.Errorf("%d refreshes", s.Refreshes)
		}
	})
}

// Contract: F3
func TestReadRefreshesEarlyAsOftenAsTheFormulaSays(t *testing.T) {
	const keys, load = 250, 100 * time.Millisecond
	for _, tc := range []struct {
		beta, left float64 // left in load durations
		want       float64 // part of reads
	}{
		{1, 20, 0}, {1, 5, math.Exp(-5)}, {1, 3, math.Exp(-3)}, {1, 2.2, math.Exp(-2.2)}, {1, 1.9, 1}, {1, 0.1, 1},
		{3, 5, math.Exp(-5.0 / 3)}, {3, 1.9, 1}, {0, 2.2, 0}, {0, 1.9, 1}, {-1, 2.2, 0}, {-1, 1.9, 0}, {-1, 0.1, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			src := &countingSource{took: load}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.Beta(tc.beta),
				onefill.MaxRefreshes(keys))
			read := func(i int) (string, error) { return g.Get(t.Context(), fmt.Sprint(i)) }
			together(keys, read)
			time.Sleep(10*time.Second - time.Duration(tc.left*float64(load)))
			for i, r := range together(keys, read) {
				if r.value != fmt.Sprintf("%d/1", i) || r.err != nil || r.after != 0 {
					t.Fatalf("read %d: %+v", i, r)
				}
			}
			synctest.Wait()
			got, spread := float64(src.total()-keys), 5*math.Sqrt(tc.want*(1-tc.want)*keys)+0.1
			if math.Abs(got-tc.want*keys) > spread {
				t.Errorf("beta %v, %v loads before the end: %v of %d reads refresh, want %.0f", tc.beta, tc.left, got, keys, tc.want*keys)
			}
		})
	}
}

// Contract: F3
func TestReadersAtOnceStartOneRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &agingSource{took: takes(slow)}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0))
		gets(t, g, "key", "1", slow)
		time.Sleep(10*time.Second - slow)
		for _, r := range together(1000, func(int) (string, error) { return g.Get(t.Context(), "key") }) {
			if r.value != "1" || r.err != nil || r.after != 0 {
				t.Fatalf("%+v", r)
			}
		}
		time.Sleep(slow)
		synctest.Wait()
		gets(t, g, "key", "2", 0)
		if s := g.Stats(); s.Loads != 2 || s.Refreshes != 1 || s.RefreshErrors != 0 || s.Hits != 1001 {
			t.Errorf("%+v", s)
		}
	})
}

// Contract: F3
func TestCallerThatLeavesAfterItStartedARefreshLeavesItRunning(t *testing.T) {
	for _, stale := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			src := &agingSource{took: takes(slow)}
			opts := []onefill.Option{onefill.TTL(10 * time.Second), onefill.Jitter(0), onefill.CancelAbandoned()}
			at := 10*time.Second - slow
			if stale { // the read waits for the refresh a little, and leaves while it does
				opts = append(opts, onefill.StaleFor(time.Minute), onefill.SoftTimeout(slow/2))
				at = 10 * time.Second
			}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, opts...)
			gets(t, g, "key", "1", slow)
			time.Sleep(at)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			v, err := g.Get(ctx, "key")
			if want := map[bool]error{true: context.DeadlineExceeded}[stale]; !errors.Is(err, want) || !stale && v != "1" {
				t.Errorf("the caller got %q, %v", v, err)
			}
			cancel()
			time.Sleep(slow)
			synctest.Wait()
			gets(t, g, "key", "2", 0)
			time.Sleep(at)
			readFor(t, g, "key", slow/10, 2*slow) // the key is not stuck: it is refreshed again
			gets(t, g, "key", "3", 0)
			if n := len(src.loads()); n != 3 {
				t.Errorf("%d loads", n)
			}
		})
	}
}

// Contract: F3, T6
func TestMaxRefreshesBoundsRefreshesAndCountsThoseSkipped(t *testing.T) {
	for _, most := range []int{0, 1, 16} {
		synctest.Test(t, func(t *testing.T) {
			src := &agingSource{took: takes(slow)}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.MaxRefreshes(most))
			const keys = 20
			read := func(i int) (string, error) { return g.Get(t.Context(), fmt.Sprint(i)) }
			together(keys, read)
			src.atOnce()
			time.Sleep(10*time.Second - slow)
			together(keys, read)
			if s := g.Stats(); s.RefreshesSkipped != uint64(keys-most) {
				t.Errorf("MaxRefreshes(%d): %d are skipped", most, s.RefreshesSkipped)
			}
			time.Sleep(slow / 2)
			synctest.Wait()
			if n := src.atOnce(); n != most {
				t.Errorf("MaxRefreshes(%d): %d ran at once", most, n)
			}
			time.Sleep(slow)
			together(keys, read) // those that are over count no more: others begin
			time.Sleep(slow)
			synctest.Wait()
			if s := g.Stats(); most == 1 && s.Refreshes < 1 || most == 16 && s.Refreshes != 16 || most == 0 && s.Refreshes != 0 {
				t.Errorf("MaxRefreshes(%d): %+v", most, s)
			}
		})
	}
}

// Contract: F1
func TestJitterNeverShortensALifeAndNeverMoreThanItSays(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		ttl := time.Duration(math.Exp(random.Float64()*math.Log(1e9))) * time.Microsecond // up to 17 minutes
		jitter := []float64{0, 1, random.Float64()}[random.IntN(3)]
		beta := []float64{-1, 0, 1, 100}[random.IntN(4)]
		load := min(time.Minute, []time.Duration{0, time.Millisecond, ttl / 10, ttl, 3 * ttl}[random.IntN(5)])
		own := random.IntN(2) == 0 // the loader says how long
		what := fmt.Sprintf("TTL(%v), Jitter(%v), Beta(%v), loads of %v, said by the loader: %t", ttl, jitter, beta, load, own)
		synctest.Test(t, func(t *testing.T) {
			group := ttl
			if own {
				group = time.Microsecond
			}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", func(ctx context.Context, key string) (string, error) {
				time.Sleep(load)
				if own {
					onefill.FillFrom(ctx).SetTTL(ttl)
				}
				return key, nil
			}, onefill.TTL(group), onefill.Jitter(jitter), onefill.Beta(beta))
			const keys = 20
			together(keys, func(i int) (string, error) { return g.Get(t.Context(), fmt.Sprint(i)) })
			peek := func() (alive int) {
				for i := range keys {
					if _, ok := g.Peek(fmt.Sprint(i)); ok {
						alive++
					}
				}
				return alive
			}
			time.Sleep(ttl - 1)
			if n := peek(); n != keys {
				t.Errorf("%s: %d of %d have ended before their time", what, keys-n, keys)
			}
			time.Sleep(1 + time.Duration(jitter*float64(ttl)) + 20*time.Millisecond)
			if n := peek(); n != 0 {
				t.Errorf("%s: %d of %d live longer than that", what, n, keys)
			}
		})
	}
}

// Contract: F1
func TestKeysFilledTogetherDoNotExpireTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &countingSource{}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load) // 5 minutes, 10 %
		const keys = 1000
		for i := range keys {
			if _, err := g.Get(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(onefill.DefaultTTL)
		for tenth := range 10 {
			alive := 0
			for i := range keys {
				if _, ok := g.Peek(fmt.Sprint(i)); ok {
					alive++
				}
			}
			if want := keys - tenth*keys/10; alive < want-80 || alive > want+80 {
				t.Errorf("after %d %% more than TTL %d of %d are alive", tenth, alive, keys)
			}
			time.Sleep(onefill.DefaultTTL / 100)
		}
	})
}
