// Loaders that read other keys: chains that come back to themselves, flights that wait for each other, and MaxLoads beneath all that.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// reads is a group in every process of a pool whose loader reads other keys and counts.
type reads struct {
	groups []*onefill.Group[string]
	of     map[string][]string // what the load of a key reads, in this order
	deep   int                 // a load nested in so many others reads nothing; 0 for no bound
	took   time.Duration       // before it reads

	mu    sync.Mutex // guards count
	count map[string]int
}

func newReads(t *testing.T, all []*process, name string, opts ...onefill.Option) *reads {
	r := &reads{of: map[string][]string{}, count: map[string]int{}}
	for i, p := range all {
		r.groups = append(r.groups, newGroup(t, p.mesh, name, func(ctx context.Context, key string) (string, error) { return r.load(ctx, i, key) }, opts...))
	}
	return r
}

// load reads through the group of the process where it runs, process i.
func (r *reads) load(ctx context.Context, i int, key string) (string, error) {
	r.mu.Lock()
	r.count[key]++
	r.mu.Unlock()
	if r.took > 0 {
		time.Sleep(r.took)
	}
	if r.deep > 0 && onefill.FillFrom(ctx).Depth() >= r.deep {
		return key, nil
	}
	value := key
	for _, next := range r.of[key] {
		v, err := r.groups[i].Get(ctx, next)
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		if len(r.of[key]) == 1 {
			value = key + "(" + v + ")"
		}
	}
	return value, nil
}

func (r *reads) loads() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, c := range r.count {
		n += c
	}
	return n
}

// cycle makes one key of each process, each of which reads the next one's.
func (r *reads) cycle(all []*process, name string) []string {
	var keys []string
	for i, p := range all {
		keys = append(keys, keysOf(p, name, i+1)[i])
	}
	for i, key := range keys {
		r.of[key] = []string{keys[(i+1)%len(keys)]}
	}
	return keys
}

// Contract: R9
func TestChainThatComesBackToItsKeyLoadsThatKeyAlone(t *testing.T) {
	for n := 1; n <= 3; n++ { // one process reads its own key; two and three come back through the others
		t.Run(fmt.Sprint(n, " processes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, n)
				r := newReads(t, all, "users")
				r.deep = n // the second load of the first key reads nothing
				keys := r.cycle(all, "users")
				want := strings.Join(append(keys, keys[0]), "(") + strings.Repeat(")", n)
				began := time.Now()
				for i, g := range r.groups {
					if v, err := g.Get(t.Context(), keys[0]); v != want || err != nil {
						t.Errorf("process %d: %q, %v", i, v, err)
					}
				}
				if took := time.Since(began); took > 100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
				if got := r.loads(); got != n+1 {
					t.Errorf("%d loads: %v", got, r.count)
				}
			})
		})
	}
}

// Contract: R9
func TestSameKeyAThirdTimeInOneChainIsRecursion(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n, " processes"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, n)
				r := newReads(t, all, "users")
				keys := r.cycle(all, "users")
				for i, g := range r.groups {
					r.count = map[string]int{}
					if v, err := g.Get(t.Context(), keys[0]); !errors.Is(err, onefill.ErrRecursion) {
						t.Errorf("process %d: %q, %v", i, v, err)
					}
					if got := r.loads(); got != 2*n {
						t.Errorf("process %d: %d loads: %v", i, got, r.count)
					}
				}
			})
		})
	}
}

// Contract: R9
func TestFlightsThatWaitForEachOtherBothFinish(t *testing.T) {
	for _, tc := range []struct{ processes, keys int }{{1, 2}, {2, 2}, {1, 3}, {3, 3}, {4, 4}} {
		t.Run(fmt.Sprint(tc.processes, " processes, ", tc.keys, " keys"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, tc.processes)
				r := newReads(t, all, "users")
				r.took, r.deep = 100*time.Millisecond, tc.keys
				var owners []*process
				for i := range tc.keys {
					owners = append(owners, all[i%tc.processes])
				}
				keys := r.cycle(owners, "users")
				for i, res := range together(3*tc.keys, func(i int) (string, error) { return r.groups[i/tc.keys%tc.processes].Get(t.Context(), keys[i%tc.keys]) }) {
					if res.err != nil || !strings.HasPrefix(res.value, keys[i%tc.keys]) || res.after > time.Second {
						t.Errorf("caller %d: %+v", i, res)
					}
				}
			})
		})
	}
}

// Every key reads the next few; all are asked for at once, everywhere. Nothing here is a cycle, so each is loaded once.
//
// Contract: R9
func TestWaitThatIsNoCycleIsNeverBroken(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, n)
			r := newReads(t, all, "users")
			r.took = 10 * time.Millisecond
			const keys = 24
			name := func(i int) string { return fmt.Sprint("key-", i) }
			for i := range keys {
				for _, step := range []int{3, 1, 2} {
					if i+step < keys {
						r.of[name(i)] = append(r.of[name(i)], name(i+step))
					}
				}
			}
			for i, res := range together(n*keys, func(i int) (string, error) { return r.groups[i%n].Get(t.Context(), name(i/n)) }) {
				if res.err != nil {
					t.Errorf("caller %d: %v", i, res.err)
				}
			}
			for i := range keys {
				if loads := r.count[name(i)]; loads != 1 {
					t.Errorf("%d processes: key %d was loaded %d times", n, i, loads)
				}
			}
		})
	}
}

// Contract: R9
func TestBatchThatReadsItsOwnKeysFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		var groups []*onefill.Group[string]
		for i, p := range all {
			load := func(_ context.Context, key string) (string, error) { return "alone " + key, nil }
			groups = append(groups, newGroup(t, p.mesh, "users", load, onefill.LoadBatch(func(ctx context.Context, keys []string) (map[string]string, error) {
				time.Sleep(10 * time.Millisecond)
				return groups[i].GetMulti(ctx, keys)
			})))
		}
		keys := append(keysOf(all[0], "users", 3), keysOf(all[1], "users", 3)...)
		values, err := groups[0].GetMulti(t.Context(), keys)
		if err != nil || len(values) != 6 {
			t.Errorf("%v, %v", values, err)
		}
		for key, v := range values {
			if v != "alone "+key {
				t.Errorf("%s: %q", key, v)
			}
		}
	})
}

// Contract: R18
func TestMaxLoadsBoundsTheLoadsOfAGroupInAProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		var mu sync.Mutex
		running, most := 0, 0
		load := func(context.Context, string) (string, error) {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
			return "value", nil
		}
		g := newGroup(t, m, "users", load, onefill.MaxLoads(3))
		began := time.Now()
		together(30, func(i int) (string, error) { return g.Get(t.Context(), fmt.Sprint(i)) })
		if took := time.Since(began); most != 3 || took != 100*time.Millisecond {
			t.Errorf("%d loads at once, 30 took %v", most, took)
		}
	})
}

// Contract: R18
func TestLoadGivesItsPlaceBackWhileItWaitsInANestedGet(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, n)
			r := newReads(t, all, "users", onefill.MaxLoads(1), onefill.LoadTimeout(time.Minute))
			r.took = time.Millisecond
			for i := range 9 {
				r.of[fmt.Sprint(i)] = []string{fmt.Sprint(i + 1)}
			}
			for i, res := range together(20, func(i int) (string, error) { return r.groups[i%n].Get(t.Context(), fmt.Sprint(i%10)) }) {
				if res.err != nil || res.after > time.Second {
					t.Errorf("%d processes, caller %d: %+v", n, i, res)
				}
			}
			if got := r.loads(); got != 10 {
				t.Errorf("%d processes: %d loads: %v", n, got, r.count)
			}
		})
	}
}

// Contract: R9, R18
func TestLoadThatReadsItsOwnKeyGivesItsPlaceBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		var g *onefill.Group[string]
		var mu sync.Mutex
		running, most := 0, 0
		work := func() { // what counts as running
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Millisecond)
			mu.Lock()
			running--
			mu.Unlock()
		}
		g = newGroup(t, m, "users", func(ctx context.Context, key string) (string, error) {
			work()
			switch onefill.FillFrom(ctx).Depth() {
			case 0:
				return g.Get(ctx, key)
			case 1:
				return g.Get(ctx, key+"'")
			}
			return key, nil
		}, onefill.MaxLoads(1), onefill.LoadTimeout(time.Minute))
		for i, r := range together(5, func(i int) (string, error) { return g.Get(t.Context(), fmt.Sprint(i)) }) {
			if r.value != fmt.Sprint(i, "'") || r.err != nil || r.after > time.Second {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if most != 1 {
			t.Errorf("%d loads were at work at once", most)
		}
	})
}

// Contract: R18
func TestFlightThatNobodyWaitsForGivesUpItsPlaceInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		db := &countingSource{took: slow}
		g := newGroup(t, m, "users", db.load, onefill.MaxLoads(1))
		results := together(3, func(i int) (string, error) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			ctx, cancel := t.Context(), func() {}
			if i == 1 {
				ctx, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
			}
			defer cancel()
			return g.Get(ctx, fmt.Sprint(i))
		})
		if !errors.Is(results[1].err, context.DeadlineExceeded) || results[0].err != nil || results[2].err != nil || results[2].after != 2*slow {
			t.Errorf("%+v", results)
		}
		time.Sleep(10 * slow)
		if n := db.loads("1"); n != 0 {
			t.Errorf("a key that nobody waited for was loaded %d times", n)
		}
		if v, err := g.Get(t.Context(), "1"); v != "1/1" || err != nil {
			t.Errorf("one who asks for it later: %q, %v", v, err)
		}
	})
}

// Two Gets of one load run at once. When the first ends, it waits for the load's place, which another load has; the second must not wait for that.
//
// Contract: R4, R18
func TestGetInALoaderKeepsItsDeadlineWhileAnotherWaitsForThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g *onefill.Group[string]
		g = newGroup(t, newMesh(t, onefill.Config{}), "users", func(ctx context.Context, key string) (string, error) {
			switch key {
			case "parallel":
				first := make(chan error, 1)
				go func() { _, err := g.Get(ctx, "inner"); first <- err }()
				time.Sleep(400 * time.Millisecond) // the inner load is done, "long" has the place
				short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				_, err := g.Get(short, "other")
				if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != 100*time.Millisecond {
					t.Errorf("a Get with a deadline of 100 ms returned %v after %v", err, took)
				}
				return key, <-first
			case "inner":
				time.Sleep(200 * time.Millisecond)
			case "long":
				time.Sleep(3 * time.Second)
			}
			return key, nil
		}, onefill.MaxLoads(1))
		for i, r := range together(2, func(i int) (string, error) {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			return g.Get(t.Context(), []string{"parallel", "long"}[i])
		}) {
			if r.err != nil {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
	})
}
