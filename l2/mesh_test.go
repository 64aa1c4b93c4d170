// Whole meshes over one tier: each a cluster of its own that knows the others through the tier alone.

package l2_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/l2"
)

// mesh returns a cluster of one process over a tier, closed at the end of the test before the tier's client.
func (w *world) mesh(tier onefill.Tier) *onefill.Mesh {
	w.t.Helper()
	m, err := onefill.New(onefill.Config{Namespace: "test", Tier: tier, MaxBytes: 8 << 20, Logger: slog.New(w.log)})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.Close(ctx); err != nil {
			w.t.Error(err)
		}
	})
	if err := m.Ready(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// cluster returns a mesh with a tier of its own, or with the one in memory.
func (w *world) cluster(change ...func(*l2.Config)) *onefill.Mesh {
	w.t.Helper()
	if w.memory != nil {
		return w.mesh(w.memory)
	}
	cfg := l2.Config{Logger: slog.New(w.log)}
	if w.pause == nil {
		cfg.TierTimeout = 5 * time.Second
	}
	for _, c := range change {
		c(&cfg)
	}
	tier, err := l2.Redis(w.open(), cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.mesh(tier)
}

// group adds a group of strings to a mesh.
func group(t *testing.T, m *onefill.Mesh, load onefill.Loader[string], opts ...onefill.Option) *onefill.Group[string] {
	t.Helper()
	g, err := onefill.NewGroup(m, "users", load, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// Contract: L1, L2, R20
func TestKeyThatIsColdInManyClustersIsLoadedOnce(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		var loads atomic.Int64
		begun, finish := make(chan struct{}), make(chan struct{})
		load := func(ctx context.Context, key string) (string, error) {
			if loads.Add(1) == 1 {
				close(begun)
			}
			<-finish
			return "value of " + key, nil
		}
		var groups []*onefill.Group[string]
		for range 4 {
			groups = append(groups, group(t, w.cluster(), load))
		}
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				if v, err := groups[i%4].Get(context.Background(), "42"); v != "value of 42" || err != nil {
					t.Errorf("got %q, %v", v, err)
				}
			})
		}
		<-begun
		if w.pause != nil {
			w.pause(10 * time.Second) // three times the claim's TTL
		}
		close(finish)
		all.Wait()
		if n := loads.Load(); n != 1 {
			t.Fatalf("%d loads, want 1", n)
		}
	})
}

// Contract: R7
func TestFailureOfALoadReachesTheClustersThatWait(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		var loads atomic.Int64
		begun, finish := make(chan struct{}), make(chan struct{})
		load := func(ctx context.Context, key string) (string, error) {
			if loads.Add(1) == 1 {
				close(begun)
			}
			<-finish
			return "", errors.New("the database is on fire")
		}
		var groups []*onefill.Group[string]
		for range 3 {
			groups = append(groups, group(t, w.cluster(), load))
		}
		errs := make(chan error, 3)
		get := func(g *onefill.Group[string]) {
			_, err := g.Get(context.Background(), "42")
			errs <- err
		}
		go get(groups[0])
		<-begun
		go get(groups[1])
		go get(groups[2])
		if w.pause != nil {
			w.pause(time.Second)
		} else {
			eventually(t, "the others to wait", func() bool {
				return w.client.PubSubNumSub(context.Background(), w.named('l')).Val()[w.named('l')] >= 2
			})
		}
		close(finish)
		for range 3 {
			if err := <-errs; err == nil || !strings.Contains(err.Error(), "the database is on fire") {
				t.Errorf("a cluster that waited got %v", err)
			}
		}
		if n := loads.Load(); n != 1 {
			t.Fatalf("%d loads, want 1", n)
		}
	})
}

// Contract: I1, I2
func TestDeleteReachesOtherClustersAndTheLoadUnderWay(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		var version atomic.Int64
		var hold atomic.Pointer[chan struct{}]
		begun := make(chan struct{}, 10)
		load := func(ctx context.Context, key string) (string, error) {
			v := version.Load()
			begun <- struct{}{}
			if c := hold.Load(); c != nil {
				<-*c
			}
			return fmt.Sprint(v), nil
		}
		one, two := group(t, w.cluster(), load), group(t, w.cluster(), load)
		want := func(g *onefill.Group[string], want string) {
			t.Helper()
			if v, err := g.Get(context.Background(), "42"); v != want || err != nil {
				t.Fatalf("got %q, %v; want %q", v, err, want)
			}
		}
		want(one, "0")
		want(two, "0")
		<-begun
		if len(begun) != 0 {
			t.Fatal("the second cluster loaded, too")
		}
		version.Store(1)
		awaitDelete(t, one, two)
		want(two, "1")
		want(one, "1")
		<-begun

		finish := make(chan struct{})
		hold.Store(&finish)
		awaitDelete(t, one, two)
		old := make(chan string, 1)
		go func() { v, _ := one.Get(context.Background(), "42"); old <- v }()
		<-begun // reads version 1
		version.Store(2)
		hold.Store(nil)
		awaitDelete(t, two, one)
		want(two, "2")
		close(finish)
		if v := <-old; v != "1" {
			t.Fatalf("who asked before the Delete got %q", v)
		}
		want(one, "2")
		want(two, "2")
	})
}

// awaitDelete deletes the key in one cluster and waits until the other has heard of it.
func awaitDelete(t *testing.T, in, other *onefill.Group[string]) {
	t.Helper()
	if err := in.Delete(context.Background(), "42"); err != nil {
		t.Fatal(err)
	}
	returned := time.Now()
	eventually(t, "the other cluster to hear of it", func() bool { _, ok := other.Peek("42"); return !ok })
	if lag := time.Since(returned); lag > 100*time.Millisecond {
		t.Fatalf("another cluster had the value for %v after Delete had returned", lag)
	}
}

// Contract: I7
func TestSetInOneClusterIsReadInAnother(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		load := func(context.Context, string) (string, error) { return "loaded", nil }
		one, two := group(t, w.cluster(), load), group(t, w.cluster(), load)
		if err := one.Set(context.Background(), "42", "set"); err != nil {
			t.Fatal(err)
		}
		for _, g := range []*onefill.Group[string]{one, two, one} {
			if v, err := g.Get(context.Background(), "42"); v != "set" || err != nil {
				t.Fatalf("got %q, %v", v, err)
			}
		}
		if v, ok := one.Peek("42"); !ok || v != "set" {
			t.Fatalf("the cluster that set it has %q, %v", v, ok)
		}
	})
}

// Contract: L8
func TestMeshDoesWithoutATierThatHangs(t *testing.T) {
	server := redistest.Start(t)
	w := inRealTime(t, server)
	var loads atomic.Int64
	g := group(t, w.cluster(quick), func(_ context.Context, key string) (string, error) { loads.Add(1); return key, nil })
	server.Pause()
	defer server.Resume()
	began := time.Now()
	if v, err := g.Get(t.Context(), "42"); v != "42" || err != nil {
		t.Fatalf("got %q, %v", v, err)
	}
	if took := time.Since(began); took > timely || loads.Load() != 1 {
		t.Fatalf("it took %v and %d loads", took, loads.Load())
	}
}

// Contract: R9
func TestLoadsOfTwoClustersThatWaitForEachOtherBothFinish(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		var groups [2]*onefill.Group[string]
		var both sync.WaitGroup
		both.Add(2)
		for i := range groups {
			groups[i] = group(t, w.cluster(), func(ctx context.Context, key string) (string, error) {
				if onefill.FillFrom(ctx).Depth() > 0 {
					return key, nil
				}
				both.Done()
				both.Wait()
				other := map[string]string{"a": "b", "b": "a"}[key]
				v, err := groups[i].Get(ctx, other)
				return key + v, err
			})
		}
		got := make(chan string, 2)
		began := time.Now()
		for i, key := range []string{"a", "b"} {
			go func() {
				v, err := groups[i].Get(context.Background(), key)
				if err != nil {
					t.Error(err)
				}
				got <- v
			}()
		}
		one, two := <-got, <-got
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("%q and %q after %v", one, two, took)
		}
	})
}

// Contract: L14
func TestMeshesOfOneProcessShareOneStore(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world) {
		tier, err := l2.Redis(w.open(), l2.Config{Logger: slog.New(w.log)})
		if err != nil {
			t.Fatal(err)
		}
		var loads atomic.Int64
		load := func(context.Context, string) (string, error) { return fmt.Sprint(loads.Add(1)), nil }
		one, two := group(t, w.mesh(tier), load), group(t, w.mesh(tier), load)
		for _, g := range []*onefill.Group[string]{one, two} {
			if v, err := g.Get(context.Background(), "42"); v != "1" || err != nil {
				t.Fatalf("got %q, %v", v, err)
			}
		}
		if err := one.Delete(context.Background(), "42"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v, err := two.Get(context.Background(), "42"); v != "2" || err != nil {
			t.Fatalf("after a Delete in the other mesh: %q, %v", v, err)
		}
	})
}
