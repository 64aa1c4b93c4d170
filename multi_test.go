// Many keys at once: GetMulti, LoadBatch, Refresh.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// batches is a source that can be asked for many keys at once. It remembers each question.
type batches struct {
	one countingSource

	mu    sync.Mutex // guards asked
	asked [][]string
}

func (b *batches) load(_ context.Context, keys []string) (map[string]string, error) {
	b.mu.Lock()
	b.asked = append(b.asked, slices.Clone(keys))
	b.mu.Unlock()
	values := make(map[string]string)
	for _, key := range keys {
		v, err := b.one.load(context.Background(), key)
		if err != nil {
			return values, err
		}
		values[key] = v
	}
	return values, nil
}

func (b *batches) option() onefill.Option { return onefill.LoadBatch(b.load) }

// Contract: R15
func TestGetMultiAsksEachOwnerOnce(t *testing.T) {
	for _, batch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 3)
			src := &batches{}
			var options []onefill.Option
			if batch {
				options = append(options, src.option())
			}
			groups := inAll(t, all, "users", src.one.load, options...)
			var keys []string
			for i := range 1000 {
				keys = append(keys, fmt.Sprint("user:", i))
			}
			values, err := groups[0].GetMulti(t.Context(), append(keys, keys[:10]...))
			if len(values) != len(keys) || err != nil {
				t.Fatalf("found %d of %d, %v", len(values), len(keys), err)
			}
			for _, key := range keys {
				if values[key] != key+"/1" {
					t.Errorf("%s: %q", key, values[key])
				}
			}
			if asks := all[0].trips.of(onefill.TripFetch); len(asks) != 2 {
				t.Errorf("%d fetches for two other owners", len(asks))
			}
			if batch && len(src.asked) != 3 {
				t.Errorf("%d calls of LoadBatch in three processes", len(src.asked))
			}
			if n := src.one.total(); n != len(keys) {
				t.Errorf("%d loads of %d keys", n, len(keys))
			}
		})
	}
}

// Contract: R15, R2
func TestGetMultiSharesFlightsWithGetsAndOtherCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: slow}
		groups := inAll(t, all, "users", src.load)
		keys := append(keysOf(all[0], "users", 5), keysOf(all[1], "users", 5)...)
		for i, r := range together(20, func(i int) (string, error) {
			if i%4 < 2 {
				return groups[i%2].Get(t.Context(), keys[i%10])
			}
			values, err := groups[i%2].GetMulti(t.Context(), keys)
			return values[keys[i%10]], err
		}) {
			if r.err != nil || r.value != keys[i%10]+"/1" || r.after > slow+100*time.Millisecond {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if n := src.total(); n != len(keys) {
			t.Errorf("%d loads of %d keys", n, len(keys))
		}
	})
}

// Contract: R15
func TestGetMultiReturnsWhatItHasAndNeverTakesAFailureForNotFound(t *testing.T) {
	for _, batch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 2)
			src := &batches{}
			options := []onefill.Option{onefill.NotFoundTTL(time.Hour)}
			if batch {
				options = append(options, src.option())
			}
			groups := inAll(t, all, "users", src.one.load, options...)
			keys := append(keysOf(all[0], "users", 5), keysOf(all[1], "users", 5)...)
			if _, err := groups[0].GetMulti(t.Context(), keys[3:6]); err != nil {
				t.Fatal(err)
			}
			down := errors.New("the source is down")
			src.one.fail(down)
			values, err := groups[0].GetMulti(t.Context(), keys)
			if len(values) != 3 || !errors.Is(err, down) || errors.Is(err, onefill.ErrNotFound) {
				t.Errorf("while it is down: %v, %v", values, err)
			}
			for _, key := range append(keys[:3:3], keys[6:]...) {
				if !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
					t.Errorf("the error does not name %q: %v", key, err)
				}
			}
			src.one.fail(nil)
			if values, err := groups[0].GetMulti(t.Context(), keys); len(values) != 10 || err != nil {
				t.Errorf("when it is back: %v, %v", values, err)
			}
		})
	}
}

// Contract: R15
func TestKeyThatABatchLacksIsNotFoundUnlessTheBatchFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		down := errors.New("half of it failed")
		var fails error
		one := func(context.Context, string) (string, error) { return "", errors.New("not to be called") }
		groups := inAll(t, all, "users", one, onefill.LoadBatch(func(_ context.Context, keys []string) (map[string]string, error) {
			values := map[string]string{"nobody asked for this": "x"}
			for _, key := range keys {
				if !strings.HasSuffix(key, "3") {
					values[key] = key
				}
			}
			return values, fails
		}))
		for i, g := range groups {
			for _, fails = range []error{nil, down} {
				var keys []string
				for k := range 40 {
					keys = append(keys, fmt.Sprint(i, fails, k))
				}
				values, err := g.GetMulti(t.Context(), keys)
				if len(values) != 36 {
					t.Errorf("found %d of 36", len(values))
				}
				if notFound := errors.Is(err, onefill.ErrNotFound); err == nil || notFound != (fails == nil) {
					t.Errorf("a batch that returned %v gave %v", fails, err)
				}
			}
		}
	})
}

// Contract: R4
func TestGetMultiEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: slow}
		groups := inAll(t, all, "users", src.load)
		keys := append(keysOf(all[0], "users", 3), keysOf(all[1], "users", 3)...)
		if _, err := groups[0].Get(t.Context(), keys[0]); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		began := time.Now()
		values, err := groups[0].GetMulti(ctx, keys)
		if len(values) != 1 || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 50*time.Millisecond {
			t.Errorf("after %v: %v, %v", time.Since(began), values, err)
		}
		time.Sleep(2 * slow)
		if _, err := groups[0].GetMulti(t.Context(), keys); err != nil || src.total() != len(keys) {
			t.Errorf("later: %v, %d loads", err, src.total())
		}
	})
}

// Contract: R15
func TestGetMultiInsideALoaderLoadsItsKeysAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: slow}
		parts := inAll(t, all, "parts", src.load)
		whole := inAll(t, all, "whole", func(ctx context.Context, key string) (string, error) {
			values, err := parts[0].GetMulti(ctx, append(keysOf(all[0], "parts", 5), keysOf(all[1], "parts", 5)...))
			return fmt.Sprint(len(values)), err
		})
		r := together(1, func(int) (string, error) { return whole[0].Get(t.Context(), keyOf(all[0], "whole")) })[0]
		if r.value != "10" || r.err != nil || r.after > slow+100*time.Millisecond {
			t.Errorf("%+v", r)
		}
	})
}

func TestRefreshLoadsAgainAndReachesEveryProcess(t *testing.T) {
	for _, batch := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 3)
			src := &batches{}
			var options []onefill.Option
			if batch {
				options = append(options, src.option())
			}
			groups := inAll(t, all, "users", src.one.load, options...)
			keys := append(keysOf(all[0], "users", 3), keysOf(all[1], "users", 3)...)
			for n := range 3 {
				if err := groups[0].Refresh(t.Context(), keys...); err != nil {
					t.Fatal(err)
				}
				for i, g := range groups {
					for _, key := range keys {
						if v, err := g.Get(t.Context(), key); v != fmt.Sprint(key, "/", n+1) || err != nil {
							t.Errorf("batch %t: process %d after %d refreshes: %q, %v", batch, i, n+1, v, err)
						}
					}
				}
			}
		})
	}
}

// Contract: R18
func TestRefreshKeepsToMaxLoadsAndReadersKeepTheOldValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{}
		g := newGroup(t, m, "users", src.load, onefill.MaxLoads(2))
		keys := []string{"a", "b", "c", "d"}
		if err := g.Refresh(t.Context(), keys...); err != nil || src.total() != 4 {
			t.Fatalf("warming: %v, %d loads", err, src.total())
		}
		src.took = slow
		time.AfterFunc(slow/2, func() {
			if v, ok := g.Peek("a"); v != "a/1" || !ok {
				t.Errorf("meanwhile there is %q, %t", v, ok)
			}
		})
		began := time.Now()
		if err := g.Refresh(t.Context(), keys...); err != nil || time.Since(began) != 2*slow {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if v, ok := g.Peek("a"); v != "a/2" || !ok {
			t.Errorf("then there is %q, %t", v, ok)
		}
	})
}

// Contract: F2, I2
func TestRefreshThatFindsNothingEndsTheOldValue(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	src := &countingSource{}
	g := newGroup(t, m, "users", src.load)
	if _, err := g.Get(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	src.fail(onefill.ErrNotFound)
	if err := g.Refresh(t.Context(), "key"); !errors.Is(err, onefill.ErrNotFound) {
		t.Errorf("Refresh: %v", err)
	}
	if v, err := g.Get(t.Context(), "key"); !errors.Is(err, onefill.ErrNotFound) {
		t.Errorf("after it: %q, %v", v, err)
	}
}

// Contract: R9
func TestLoaderThatRefreshesItsOwnKeyIsTold(t *testing.T) {
	var g *onefill.Group[string]
	loads := 0
	g = newGroup(t, newMesh(t, onefill.Config{}), "users", func(ctx context.Context, key string) (string, error) {
		if loads++; loads > 10 {
			return "", errors.New("without end")
		}
		return "", g.Refresh(ctx, key)
	})
	if _, err := g.Get(t.Context(), "key"); !errors.Is(err, onefill.ErrRecursion) || loads != 1 {
		t.Errorf("%d loads, %v", loads, err)
	}
}
