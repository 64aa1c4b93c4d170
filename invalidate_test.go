// What Delete and Set keep from coming back: in the processes that have a value, and in the loads that are under way.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// row is one row of a source that changes. A load reads it at its beginning and takes its time to bring it home.
type row struct {
	mu    sync.Mutex // guards value
	value string
	took  time.Duration
}

func (r *row) write(value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.value = value
}

func (r *row) load(context.Context, string) (string, error) {
	r.mu.Lock()
	value := r.value
	r.mu.Unlock()
	time.Sleep(r.took)
	return value, nil
}

// invalidations are the calls that make what was loaded before them old. Each leaves the value "new".
var invalidations = map[string]func(context.Context, *onefill.Group[string], string) error{
	"Delete":  func(ctx context.Context, g *onefill.Group[string], key string) error { return g.Delete(ctx, key) },
	"Set":     func(ctx context.Context, g *onefill.Group[string], key string) error { return g.Set(ctx, key, "new") },
	"Refresh": func(ctx context.Context, g *onefill.Group[string], key string) error { return g.Refresh(ctx, key) },
}

// The process that invalidates, those that read and the one that loads are the same one in a pool of one, and three different ones in a pool of three.
//
// Contract: I2, I7
func TestLoadThatBeganBeforeAnInvalidationIsNeitherStoredNorServedAfterIt(t *testing.T) {
	for name, invalidate := range invalidations {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " among ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					all := newMeshes(t, n)
					src := &row{value: "old", took: slow}
					groups := inAll(t, all, "users", src.load)
					key := keyOf(all[0], "users")
					reader, other := groups[n/2], groups[n-1]
					early := make(chan result, 2)
					for _, g := range []*onefill.Group[string]{reader, groups[0]} {
						go func() {
							v, err := g.Get(t.Context(), key)
							early <- result{value: v, err: err}
						}()
					}
					time.Sleep(slow / 2)
					src.write("new")
					if err := invalidate(t.Context(), other, key); err != nil {
						t.Fatal(err)
					}
					for i, g := range groups { // the old load may be under way still
						if v, err := g.Get(t.Context(), key); v != "new" || err != nil {
							t.Errorf("process %d after the call: %q, %v", i, v, err)
						}
					}
					for range cap(early) { // those who came before get what was loaded for them
						if r := <-early; r.value != "old" || r.err != nil {
							t.Errorf("a Get from before: %+v", r)
						}
					}
					time.Sleep(2 * slow)
					for i, g := range groups {
						if v, ok := g.Peek(key); ok && v != "new" {
							t.Errorf("process %d has kept %q", i, v)
						}
					}
					if v, ok := groups[0].Peek(key); v != "new" || !ok {
						t.Errorf("the owner has %q, %t", v, ok)
					}
				})
			})
		}
	}
}

// Contract: I1, I2
func TestHotCopiesGoWithTheValue(t *testing.T) {
	for name, invalidate := range invalidations {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 3)
			src := &row{value: "old"}
			groups := inAll(t, all, "users", src.load)
			keys := append(keysOf(all[0], "users", 3), keysOf(all[1], "users", 3)...)
			for _, g := range groups {
				if _, err := g.GetMulti(t.Context(), keys); err != nil {
					t.Fatal(err)
				}
			}
			src.write("new")
			for i, key := range keys {
				if err := invalidate(t.Context(), groups[i%3], key); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				for k, g := range groups {
					if v, err := g.Get(t.Context(), key); v != "new" || err != nil {
						t.Errorf("%s: process %d: %q, %v", name, k, v, err)
					}
				}
			}
		})
	}
}

// Numbers are Lamport's: a process that has seen little must not think that its own are high.
//
// Contract: I1
func TestInvalidationOfAQuietProcessOutranksTheValuesOfABusyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		groups := inAll(t, all, "users", src.load)
		keys := keysOf(all[0], "users", 200)
		for _, key := range keys {
			if _, err := groups[0].Get(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		last := keys[len(keys)-1]
		if err := groups[1].Delete(t.Context(), last); err != nil {
			t.Fatal(err)
		}
		if v, ok := groups[0].Peek(last); ok {
			t.Errorf("the owner still has %q", v)
		}
		if err := groups[1].Set(t.Context(), last, "set"); err != nil {
			t.Fatal(err)
		}
		if v, ok := groups[0].Peek(last); v != "set" || !ok {
			t.Errorf("the owner has %q, %t", v, ok)
		}
	})
}

// Contract: I7
func TestOfConcurrentSetsTheSameOneWinsEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 4)
		src := &row{value: "loaded"}
		groups := inAll(t, all, "users", src.load)
		for round := range 40 {
			key := keysOf(all[round%4], "users", round+1)[round]
			for _, g := range groups { // all hold a copy; cold loads that begin between two Sets are another matter
				_, _ = g.Get(t.Context(), key)
			}
			together(2, func(i int) (string, error) {
				if err := groups[i%4].Set(t.Context(), key, fmt.Sprint("of ", i)); err != nil {
					t.Errorf("Set: %v", err)
				}
				return "", nil
			})
			var seen []string
			for _, g := range groups {
				v, err := g.Get(t.Context(), key)
				if err != nil {
					t.Error(err)
				}
				seen = append(seen, v)
			}
			if slices.Max(seen) != slices.Min(seen) || seen[0] == "loaded" {
				t.Errorf("round %d: %q", round, seen)
			}
		}
	})
}

// Contract: I3, I9
func TestInvalidateErrorNamesTheProcessThatCouldNotBeReached(t *testing.T) {
	for name, invalidate := range invalidations {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork()
			all := newMeshesOn(t, net, 3)
			src := &row{value: "old"}
			groups := inAll(t, all, "users", src.load)
			key := keyOf(all[1], "users")
			for _, g := range groups {
				if _, err := g.Get(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			src.write("new")
			net.unplug(addressOf(2))
			err := invalidate(t.Context(), groups[0], key)
			var unreached *onefill.InvalidateError
			if !errors.As(err, &unreached) || !slices.Equal(unreached.Unreached, []string{all[2].url}) || unreached.Group != "users" {
				t.Errorf("%s: %v", name, err)
			}
			for i, g := range groups[:2] {
				if v, err := g.Get(t.Context(), key); v != "new" || err != nil {
					t.Errorf("%s: process %d: %q, %v", name, i, v, err)
				}
			}
			if n := groups[0].Stats().Unreached; n != 1 {
				t.Errorf("%s: %d unreached were counted", name, n)
			}
		})
	}
}

// Contract: I4
func TestDeleteOfManyKeysIsOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		groups := inAll(t, all, "users", src.load)
		keys := keysOf(all[1], "users", 1000)
		if _, err := groups[0].GetMulti(t.Context(), keys); err != nil {
			t.Fatal(err)
		}
		if err := groups[0].Delete(t.Context(), append(keys, keys[0])...); err != nil {
			t.Fatal(err)
		}
		for i, g := range groups {
			if n := g.Stats().Entries; n != 0 {
				t.Errorf("process %d has %d entries", i, n)
			}
		}
		if n := len(all[0].trips.of(onefill.TripInvalidate)); n != 1 {
			t.Errorf("%d invalidations", n)
		}
		if err := groups[0].Delete(t.Context()); err != nil || groups[0].Stats().Invalidations != 1 {
			t.Errorf("Delete of nothing: %v", err)
		}
	})
}

// An invalidation keeps out what was loaded before it, not what was loaded of other keys, although those share its floor.
//
// Contract: I2, R3
func TestLoadsOfOtherKeysAreStoredAfterAnInvalidation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{took: slow}
		g := newGroup(t, m, "users", src.load)
		var others []string // more than there are floors
		for i := range 60_000 {
			others = append(others, fmt.Sprint("other ", i))
		}
		time.AfterFunc(slow/2, func() {
			if err := g.Delete(t.Context(), others...); err != nil {
				t.Error(err)
			}
		})
		const keys = 100
		together(keys, func(i int) (string, error) { return g.Get(t.Context(), fmt.Sprint(i)) })
		for i := range keys {
			if _, ok := g.Peek(fmt.Sprint(i)); !ok {
				t.Errorf("key %d was not stored", i)
			}
		}
	})
}

func TestWhatALoaderSaysOfItsFillIsKeptTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		var say func(*onefill.Fill)
		loads := 0
		groups := inAll(t, all, "users", func(ctx context.Context, key string) (string, error) {
			loads++
			say(onefill.FillFrom(ctx))
			return key, nil
		}, onefill.Jitter(0))
		for i, tc := range []struct {
			name  string
			say   func(*onefill.Fill)
			lives time.Duration
		}{
			{"nothing", func(*onefill.Fill) {}, onefill.DefaultTTL},
			{"SetTTL(1s)", func(f *onefill.Fill) { f.SetTTL(time.Second) }, time.Second},
			{"SetTTL(1h)", func(f *onefill.Fill) { f.SetTTL(time.Hour) }, time.Hour},
			{"SetTTL(0)", func(f *onefill.Fill) { f.SetTTL(0) }, 0},
			{"DoNotStore", func(f *onefill.Fill) { f.DoNotStore() }, 0},
		} {
			say = tc.say
			key := keysOf(all[1], "users", i+1)[i]
			for who, g := range groups {
				if v, err := g.Get(t.Context(), key); v != key || err != nil {
					t.Errorf("%s, process %d: %q, %v", tc.name, who, v, err)
				}
			}
			if want := min(tc.lives, onefill.DefaultHotTTL); want > 0 {
				time.Sleep(want - 20*time.Millisecond)
				if _, ok := groups[0].Peek(key); !ok {
					t.Errorf("%s: the hot copy has gone before its time", tc.name)
				}
				time.Sleep(40 * time.Millisecond)
				if _, ok := groups[1].Peek(key); ok != (tc.lives > want) {
					t.Errorf("%s: after %v the owner has it: %t", tc.name, want, ok)
				}
			}
			if _, ok := groups[0].Peek(key); ok {
				t.Errorf("%s: the hot copy has outlived its time", tc.name)
			}
		}
		if loads != 7 { // what is not stored is loaded for each
			t.Errorf("%d loads", loads)
		}
		outside := onefill.FillFrom(t.Context())
		outside.SetTTL(time.Second)
		outside.NotFound()
		if outside.Fence() != 0 || outside.Depth() != 0 {
			t.Error("outside a loader there is a fill")
		}
	})
}

// A key is the same thing of the source in every version of a group.
//
// Contract: I1
func TestDeleteReachesOtherVersionsOfTheGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		a := newGroup(t, all[0].mesh, "users", src.load, onefill.Version("1"))
		b := newGroup(t, all[1].mesh, "users", src.load, onefill.Version("2"))
		key := keyOf(all[0], "users")
		if v, err := a.Get(t.Context(), key); v != key+"/1" || err != nil {
			t.Fatalf("%q, %v", v, err)
		}
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if v, err := a.Get(t.Context(), key); v != key+"/2" || err != nil {
			t.Errorf("after the Delete: %q, %v", v, err)
		}
	})
}

// Contract: I3
func TestDeleteWhoseCallerLeavesGoesOnInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		groups := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		if _, err := groups[0].Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := groups[1].Delete(ctx, key); err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if v, err := groups[0].Get(t.Context(), key); v != key+"/2" || err != nil {
			t.Errorf("a second later: %q, %v", v, err)
		}
	})
}
