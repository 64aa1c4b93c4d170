// What freshness promises in a pool: hot copies and how they are renewed, that the owner alone refreshes and says when a failed load is tried again, and that
// nobody waits at expiry wherever the reads happen.

package onefill_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// Contract: F9, F3
func TestNobodyWaitsForALoadWhereverTheReadsHappen(t *testing.T) {
	const load = 450 * time.Millisecond
	for _, name := range []string{"up down", "saw"} {
		for _, lives := range []float64{4.02, 10} { // in loads
			for _, hot := range []float64{0.5, 1, 3, 8, 100} { // in loads, too
				nobodyWaits(t, name, rhythms[name](load), load, lives, hot, []int{0})
				if hot == 1 || hot == 100 {
					nobodyWaits(t, name, rhythms[name](load), load, lives, hot, []int{0, 1, 2})
				}
			}
		}
	}
}

// nobodyWaits reads a key of process 2 in some processes for 20 of its lives. A life and the stay of copies are given in loads.
func nobodyWaits(t *testing.T, rhythm string, took func(int) time.Duration, load time.Duration, lives, hot float64, readers []int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 3)
		src := &agingSource{took: took}
		ttl := time.Duration(lives * float64(load))
		groups := inAll(t, all, "users", src.load, onefill.TTL(ttl), onefill.HotTTL(time.Duration(hot*float64(load))))
		key := keyOf(all[2], "users")
		together(len(readers), func(i int) (string, error) { return groups[readers[i]].Get(t.Context(), key) })
		var reading sync.WaitGroup
		for _, i := range readers {
			reading.Go(func() {
				if wait := readFor(t, groups[i], key, shortest(took)/10, 20*ttl); wait > 0 {
					t.Errorf("%s loads, a life of %v, copies for %v loads, read in %v: a read waited for %v", rhythm, ttl, hot, readers, wait)
				}
			})
		}
		reading.Wait()
		if n, most := len(src.loads()), int(20*ttl/shortest(took)); n < 15 || n > most {
			t.Errorf("%s loads, a life of %v, copies for %v loads: %d loads", rhythm, ttl, hot, n)
		}
		if others := groups[0].Stats().Loads + groups[1].Stats().Loads; others != 0 {
			t.Errorf("%d loads outside the owner", others)
		}
		if n := src.atOnce(); n != 1 {
			t.Errorf("%d loads at once", n)
		}
	})
}

// Contract: F3, F8
func TestHotKeyCostsItsOwnerTwoRequestsASecond(t *testing.T) {
	for name, opts := range map[string][]onefill.Option{
		"defaults":                nil,
		"a life of 20 s":          {onefill.TTL(20 * time.Second)},
		"a life of 5 s":           {onefill.TTL(5 * time.Second)},
		"stale values":            {onefill.TTL(5 * time.Second), onefill.StaleFor(time.Hour)},
		"stale after SoftTimeout": {onefill.TTL(5 * time.Second), onefill.StaleFor(time.Hour), onefill.SoftTimeout(10 * time.Millisecond)},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 2)
			src := &agingSource{took: takes(slow)}
			groups := inAll(t, all, "users", src.load, opts...)
			key := keyOf(all[1], "users")
			gets(t, groups[0], key, "1", slow)
			asked := func() int { return len(all[1].trips.of(onefill.TripServe)) }
			began := asked()
			for second := range 30 {
				if second == 12 && name[:5] == "stale" {
					src.set(errDown, false)
				}
				if second == 22 {
					src.set(nil, false)
				}
				before := asked()
				for range 1000 {
					for range 10 {
						if _, err := groups[0].Get(t.Context(), key); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Millisecond)
				}
				if n := asked() - before; n > 2 {
					t.Errorf("%s: %d requests in second %d", name, n, second)
				}
			}
			if asked() == began {
				t.Errorf("%s: the copy was never renewed", name)
			}
		})
	}
}

// Contract: F8
func TestCopyStaysForHotTTLAndNoLongerThanTheValueIsFresh(t *testing.T) {
	for _, tc := range []struct{ ttl, hot, want time.Duration }{
		{time.Minute, 0, 10 * time.Second}, // the default
		{5 * time.Second, 0, 5 * time.Second},
		{time.Minute, 3 * time.Second, 3 * time.Second},
		{3 * time.Second, time.Minute, 3 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 2)
			src := &agingSource{}
			opts := []onefill.Option{onefill.TTL(tc.ttl), onefill.Jitter(0), onefill.StaleFor(time.Hour)}
			if tc.hot > 0 {
				opts = append(opts, onefill.HotTTL(tc.hot))
			}
			groups := inAll(t, all, "users", src.load, opts...)
			key := keyOf(all[1], "users")
			gets(t, groups[0], key, "1", 0)
			time.Sleep(tc.want - 1)
			if _, ok := groups[0].Peek(key); !ok {
				t.Errorf("TTL %v, HotTTL %v: gone before %v", tc.ttl, tc.hot, tc.want)
			}
			time.Sleep(time.Nanosecond)
			if _, ok := groups[0].Peek(key); ok {
				t.Errorf("TTL %v, HotTTL %v: still there after %v", tc.ttl, tc.hot, tc.want)
			}
			if tc.want == tc.ttl {
				return
			}
			gets(t, groups[0], key, "1", 0)
			if s := groups[0].Stats(); s.Fetches != 2 || s.Stale != 0 || s.Hits != 0 { // the owner may have had a newer one
				t.Errorf("a copy whose stay was over was served: %+v", s)
			}
		})
	}
}

// Contract: F8
func TestWithoutHotTTLNoCopiesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &agingSource{}
		groups := inAll(t, all, "users", src.load, onefill.HotTTL(0))
		key := keyOf(all[1], "users")
		for n := range 3 {
			gets(t, groups[0], key, "1", 0)
			if s := groups[0].Stats(); s.Entries != 0 || s.Fetches != uint64(n+1) {
				t.Errorf("%+v", s)
			}
		}
	})
}

// Contract: F3
func TestHoldersThatRefreshAtOnceCostOneLoadAtTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 4)
		src := &agingSource{took: takes(slow)}
		groups := inAll(t, all, "users", src.load, onefill.TTL(10*time.Second), onefill.HotTTL(time.Minute), onefill.Jitter(0))
		key := keyOf(all[3], "users")
		for _, r := range together(3, func(i int) (string, error) { return groups[i].Get(t.Context(), key) }) {
			if r.value != "1" || r.err != nil {
				t.Fatalf("%+v", r)
			}
		}
		time.Sleep(10*time.Second - slow - 10*time.Millisecond)
		for _, r := range together(300, func(i int) (string, error) { return groups[i%3].Get(t.Context(), key) }) {
			if r.value != "1" || r.err != nil || r.after != 0 {
				t.Fatalf("%+v", r)
			}
		}
		time.Sleep(slow)
		synctest.Wait()
		for i, g := range groups {
			gets(t, g, key, "2", 0)
			if s := g.Stats(); s.Loads != 0 != (i == 3) || s.Loads > 2 || i < 3 && (s.Fetches != 2 || s.Refreshes != 1) {
				t.Errorf("process %d: %+v", i, s)
			}
		}
	})
}

// Contract: F4, F5
func TestProcessWithoutAValueGetsTheOwnersStaleOne(t *testing.T) {
	for _, tc := range []struct{ took, soft, after time.Duration }{
		{slow, 0, 0}, {slow, 10 * time.Millisecond, 10 * time.Millisecond}, {50 * time.Millisecond, time.Second, 50 * time.Millisecond},
	} {
		for _, opt := range []onefill.Option{nil, onefill.CancelAbandoned()} {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, 3)
				src := &agingSource{took: takes(tc.took)}
				groups := inAll(t, all, "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour),
					onefill.SoftTimeout(tc.soft), onefill.Beta(-1), opt)
				key := keyOf(all[2], "users")
				gets(t, groups[2], key, "1", tc.took)
				time.Sleep(10 * time.Second)
				src.set(errDown, false)
				gets(t, groups[0], key, "1", tc.after)
				time.Sleep(tc.took)
				synctest.Wait()
				gets(t, groups[0], key, "1", 0) // until the next retry nobody waits
				src.set(nil, false)
				time.Sleep(time.Second)
				if v, err := groups[1].Get(t.Context(), key); err != nil || v != "1" && v != "3" {
					t.Errorf("%q, %v", v, err)
				}
				time.Sleep(tc.took)
				synctest.Wait()
				gets(t, groups[1], key, "3", 0)
				if n := len(src.loads()); n != 3 {
					t.Errorf("%d loads", n)
				}
			})
		}
	}
}

// Contract: F5, F3
func TestOwnerAlonePacesTheRetriesOfAllHolders(t *testing.T) {
	for _, soft := range []time.Duration{0, 10 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			const fails = 50 * time.Millisecond
			all := newMeshes(t, 4)
			src := &agingSource{took: takes(fails)}
			groups := inAll(t, all, "users", src.load, onefill.TTL(8*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour), onefill.SoftTimeout(soft),
				onefill.Beta(-1))
			key := keyOf(all[3], "users")
			together(3, func(i int) (string, error) { return groups[i].Get(t.Context(), key) })
			time.Sleep(8 * time.Second)
			src.set(errDown, false)
			everywhere := func(do func(i int, g *onefill.Group[string])) {
				var reading sync.WaitGroup
				for i, g := range groups[:3] { // nobody reads at the owner
					reading.Go(func() { do(i, g) })
				}
				reading.Wait()
			}
			everywhere(func(i int, g *onefill.Group[string]) {
				late := time.Duration(i) * 20 * time.Second
				time.Sleep(late)
				retried(t, g, key, "1", soft, 2*time.Minute-late)
			})
			pauses := src.pauses(1)
			if len(pauses) < 6 {
				t.Errorf("only %d retries", len(pauses))
			}
			backsOff(t, pauses, time.Second, fails+30*time.Millisecond)
			src.set(nil, false)
			var fresh [3]time.Duration
			back := time.Now()
			everywhere(func(i int, g *onefill.Group[string]) {
				for v := "1"; v == "1" && fresh[i] < time.Hour; time.Sleep(10 * time.Millisecond) {
					v, _ = g.Get(t.Context(), key)
					fresh[i] = time.Since(back)
				}
			})
			if first, last := slices.Min(fresh[:]), slices.Max(fresh[:]); last > 31*time.Second || last-first > time.Second {
				t.Errorf("after the source is back values are fresh after %v", fresh)
			}
			if n := len(src.loads()); n != len(pauses)+3 { // all but one of them failed
				t.Errorf("%d loads, %d pauses before the last", n, len(pauses))
			}
		})
	}
}

// Contract: F3
func TestCopyWhoseOwnerIsGoneIsRefreshedByTheNextInRank(t *testing.T) {
	for _, hot := range []time.Duration{2 * time.Second, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork()
			all := newMeshesOn(t, net, 3)
			src := &agingSource{took: takes(slow)}
			groups := inAll(t, all, "users", src.load, onefill.TTL(10*time.Second), onefill.HotTTL(hot))
			key := keyOf(all[2], "users")
			gets(t, groups[0], key, "1", slow)
			net.unplug(addressOf(2))
			if wait := readFor(t, groups[0], key, slow/10, time.Minute); wait > slow {
				t.Errorf("a read waited for %v", wait)
			}
			if s := groups[2].Stats(); s.Loads != 1 {
				t.Errorf("the owner that cannot be reached loaded %d times", s.Loads)
			}
			if n := src.atOnce(); n != 1 {
				t.Errorf("%d loads at once", n)
			}
		})
	}
}

// Contract: F3, F9
func TestHolderThatBecomesTheOwnerLoadsBeforeItsCopyEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &agingSource{took: takes(slow)}
		groups := inAll(t, all, "users", src.load, onefill.TTL(time.Minute), onefill.HotTTL(5*time.Second))
		key := keyOf(all[1], "users")
		gets(t, groups[0], key, "1", slow)
		closeMesh(t, all[1].mesh)
		if wait := readFor(t, groups[0], key, slow/10, 20*time.Second); wait > 0 {
			t.Errorf("a read waited for %v", wait)
		}
		if s := groups[0].Stats(); s.Loads != 1 || s.Refreshes != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// Contract: F7, F2
func TestCopyOfAValueThatIsGoneIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: slow}
		groups := inAll(t, all, "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour))
		key := keyOf(all[1], "users")
		gets(t, groups[0], key, key+"/1", slow)
		src.fail(onefill.ErrNotFound)
		time.Sleep(10 * time.Second)
		gets(t, groups[0], key, key+"/1", 0)
		time.Sleep(slow)
		synctest.Wait()
		for _, g := range groups {
			finds(t, g, src, key, "", src.loads(key)+1)
		}
		for i, p := range all {
			if text := p.log.text(); text != "" || groups[i].Stats().RefreshErrors != 0 {
				t.Errorf("process %d took it for a failure: %s", i, text)
			}
		}
	})
}

// Contract: F5
func TestRefreshOfACallerIsNotHeldBackByAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &agingSource{took: takes(slow)}
		groups := inAll(t, all, "users", src.load, onefill.TTL(8*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour), onefill.RetryAfter(time.Minute))
		key := keyOf(all[1], "users")
		gets(t, groups[0], key, "1", slow)
		time.Sleep(8 * time.Second)
		src.set(errDown, false)
		retried(t, groups[0], key, "1", 0, time.Second)
		src.set(nil, false)
		if err := groups[0].Refresh(context.Background(), key); err != nil {
			t.Error(err)
		}
		for i, g := range groups {
			if v, ok := g.Peek(key); !ok || v != fmt.Sprint(len(src.loads())) {
				t.Errorf("process %d has %q, %t after %d loads", i, v, ok, len(src.loads()))
			}
		}
	})
}
