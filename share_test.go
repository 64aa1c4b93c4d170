// Who shares a load, who waits for it and for how long, and on what context it runs.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

const slow = 450 * time.Millisecond // a load that is worth sharing

// Contract: R2, R3
func TestHundredThousandCallersCostOneLoad(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	var loads atomic.Int64
	g := newGroup(t, m, "users", func(context.Context, string) (string, error) { loads.Add(1); return "value", nil })
	start := make(chan struct{})
	var running sync.WaitGroup
	for range manyGoroutines {
		running.Go(func() {
			<-start
			if v, err := g.Get(context.Background(), "key"); v != "value" || err != nil {
				t.Error(v, err)
			}
		})
	}
	close(start)
	running.Wait()
	for range 2 {
		if _, err := g.Get(t.Context(), "key"); err != nil {
			t.Error(err)
		}
	}
	if n := loads.Load(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// Contract: R3
func TestGetAfterAReturnedGetCostsNoLoad(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	var loads atomic.Int64
	g := newGroup(t, m, "users", func(context.Context, string) (string, error) { loads.Add(1); return "value", nil })
	const keys = 2000
	var running sync.WaitGroup
	for range 2 * runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := range keys {
				if _, err := g.Get(context.Background(), fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
				if _, ok := g.Peek(fmt.Sprint(i)); !ok {
					t.Errorf("key %d was returned before it could be seen", i)
				}
			}
		})
	}
	running.Wait()
	if n := loads.Load(); n != keys {
		t.Errorf("%d loads of %d keys", n, keys)
	}
}

// Contract: R2
func TestPoolLoadsAColdKeyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 3)
		db := &countingSource{took: slow}
		groups := inAll(t, all, "users", db.load)
		for i, r := range together(300, func(i int) (string, error) { return groups[i%3].Get(t.Context(), "key") }) {
			if r.err != nil || r.value != "key/1" || r.after > slow+100*time.Millisecond {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if n := db.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// The owner's own callers, its peers' questions and a peer's fallback meet in one fill.
//
// Contract: R2
func TestPeersAndLocalCallersJoinTheSameFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{took: slow}
		groups := inAll(t, all, "users", db.load)
		key := keyOf(all[0], "users")
		results := together(4, func(i int) (string, error) {
			time.Sleep(time.Duration(i) * slow / 5)
			return groups[i%2].Get(t.Context(), key)
		})
		for i, r := range results {
			if r.err != nil || r.value != key+"/1" || r.after > slow+100*time.Millisecond {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if asks := all[1].trips.path(); asks != "get get/fetch get" {
			t.Errorf("two Gets of the other process made the trips %q", asks)
		}
	})
}

// Contract: R4, R5
func TestFirstCallersCancellationIsItsOwn(t *testing.T) {
	for _, where := range []string{"owner", "other"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, 2)
				db := &countingSource{took: 300 * time.Millisecond}
				groups := inAll(t, all, "users", db.load)
				owner := map[string]int{"owner": 0, "other": 1}[where]
				key := keyOf(all[owner], "users")
				first, cancel := context.WithCancel(t.Context())
				time.AfterFunc(30*time.Millisecond, cancel)
				results := together(10, func(i int) (string, error) {
					if i == 0 {
						return groups[0].Get(first, key)
					}
					time.Sleep(time.Millisecond)
					return groups[0].Get(t.Context(), key)
				})
				if r := results[0]; !errors.Is(r.err, context.Canceled) || r.after != 30*time.Millisecond {
					t.Errorf("the caller that cancelled: %+v", r)
				}
				for _, r := range results[1:] {
					if r.err != nil || r.value != key+"/1" {
						t.Errorf("a caller that did not: %+v", r)
					}
				}
				if n := db.total(); n != 1 {
					t.Errorf("%d loads", n)
				}
			})
		})
	}
}

// Contract: R4
func TestWaitersDeadlineFreesItAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{took: slow}
		groups := inAll(t, all, "users", db.load)
		results := together(4, func(i int) (string, error) {
			if i < 2 {
				return groups[i].Get(t.Context(), "key")
			}
			time.Sleep(time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			return groups[i-2].Get(ctx, "key")
		})
		for i, r := range results[:2] {
			if r.err != nil {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		for _, r := range results[2:] {
			if r.err != context.DeadlineExceeded || r.after != 51*time.Millisecond { // its very own error
				t.Errorf("a caller with a deadline of 50 ms: %+v", r)
			}
		}
	})
}

type valueKey struct{}

// Contract: R5
func TestLoadHasTheStartersValuesAndNobodysDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		g := newGroup(t, m, "users", func(ctx context.Context, key string) (string, error) {
			deadline, ok := ctx.Deadline()
			if in := time.Until(deadline); !ok || in != onefill.DefaultLoadTimeout {
				t.Errorf("the load has to be done in %v, %t", in, ok)
			}
			time.Sleep(slow)
			return ctx.Value(valueKey{}).(string), ctx.Err()
		})
		ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "of the starter"), 10*time.Millisecond)
		defer cancel()
		if _, err := g.Get(ctx, "key"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if v, err := g.Get(t.Context(), "key"); v != "of the starter" || err != nil {
			t.Error(v, err)
		}
	})
}

// Contract: R5
func TestAbandonedLoadGoesOnAndIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{took: slow}
		groups := inAll(t, all, "users", db.load)
		key := keyOf(all[1], "users")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := groups[0].Get(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		time.Sleep(2 * slow)
		for i, g := range groups {
			if v, ok := g.Peek(key); !ok || v != key+"/1" {
				t.Errorf("process %d has %q, %t", i, v, ok)
			}
		}
	})
}

// Contract: R5
func TestCancelAbandonedCancelsTheLoadThatNobodyWaitsFor(t *testing.T) {
	for _, where := range []string{"owner", "other"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, 2)
				var cancelled, loads atomic.Int64
				groups := inAll(t, all, "users", func(ctx context.Context, key string) (string, error) {
					loads.Add(1)
					select {
					case <-ctx.Done():
						cancelled.Add(1)
						time.Sleep(slow) // it takes its time to give up
						return "", ctx.Err()
					case <-time.After(slow):
						return key, nil
					}
				}, onefill.CancelAbandoned())
				key := keyOf(all[map[string]int{"owner": 0, "other": 1}[where]], "users")
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				if _, err := groups[0].Get(ctx, key); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				time.Sleep(10 * time.Millisecond) // the cancelled flight is still there: a caller that comes now starts its own
				if cancelled.Load() != 1 {
					t.Fatalf("%d loads were cancelled", cancelled.Load())
				}
				if v, err := groups[0].Get(t.Context(), key); v != key || err != nil || loads.Load() != 2 {
					t.Errorf("a caller that came after it was cancelled: %q, %v, %d loads", v, err, loads.Load())
				}
			})
		})
	}
}

// Contract: R5
func TestCancelAbandonedSparesALoadThatSomeoneWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{took: slow}
		groups := inAll(t, all, "users", db.load, onefill.CancelAbandoned())
		key := keyOf(all[1], "users")
		results := together(4, func(i int) (string, error) {
			ctx, cancel := t.Context(), func() {}
			if i < 2 {
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			}
			defer cancel()
			return groups[i%2].Get(ctx, key)
		})
		for i, r := range results {
			if want := i >= 2; (r.err == nil) != want {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if n := db.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// Contract: R5
func TestLoadTimeoutCancelsTheLoadersContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{took: time.Hour}
		groups := inAll(t, all, "users", db.load, onefill.LoadTimeout(time.Second))
		for i, r := range together(2, func(i int) (string, error) { return groups[i].Get(t.Context(), "key") }) {
			if !errors.Is(r.err, onefill.ErrLoadTimeout) || r.after > 1100*time.Millisecond {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if n := db.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// Contract: R5
func TestLoaderThatIgnoresItsContextIsGivenUpAndItsLateValueDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		var returned atomic.Bool
		groups := inAll(t, all, "users", func(context.Context, string) (string, error) {
			time.Sleep(10 * time.Second)
			returned.Store(true)
			return "late", nil
		}, onefill.LoadTimeout(time.Second))
		for i, r := range together(2, func(i int) (string, error) { return groups[i].Get(t.Context(), "key") }) {
			if !errors.Is(r.err, onefill.ErrLoadTimeout) || r.after < 6*time.Second || r.after > 6100*time.Millisecond {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		time.Sleep(10 * time.Second)
		if !returned.Load() {
			t.Error("the loader did not return")
		}
		for i, g := range groups {
			if v, ok := g.Peek("key"); ok {
				t.Errorf("process %d has kept %q", i, v)
			}
		}
	})
}

// Contract: R20
func TestProcessWithoutPeersFillsEverythingItself(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	db := &countingSource{}
	g := newGroup(t, m, "users", db.load)
	ctx := t.Context()
	if err := m.Ready(ctx); err != nil {
		t.Error(err)
	}
	if v, err := g.Get(ctx, "key"); v != "key/1" || err != nil {
		t.Error(v, err)
	}
	if v, err := g.GetMulti(ctx, []string{"key", "other"}); len(v) != 2 || err != nil {
		t.Error(v, err)
	}
	if err := errors.Join(g.Refresh(ctx, "key"), g.Delete(ctx, "other"), g.Set(ctx, "third", "set")); err != nil {
		t.Error(err)
	}
	if v, ok := g.Peek("key"); v != "key/2" || !ok {
		t.Error(v, ok)
	}
	if s := m.Stats(); len(s.Members) != 0 || s.Groups["users"].Entries != 2 {
		t.Errorf("%+v", s)
	}
}
