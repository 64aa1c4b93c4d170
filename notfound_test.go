// "Not found" as something that is remembered: for how long, apart from values, and in every process. That it reaches every waiter stands in failure_test.go.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// finds fails the test unless a Get brings want, or ErrNotFound where want is empty, and the source has been asked so many times by then.
func finds(t *testing.T, g *onefill.Group[string], src *countingSource, key, want string, loads int) {
	t.Helper()
	v, err := g.Get(context.Background(), key)
	if found := err == nil; v != want || found != (want != "") || !found && !errors.Is(err, onefill.ErrNotFound) {
		t.Errorf("%s: got %q, %v; want %q", key, v, err, want)
	}
	if n := src.loads(key); n != loads {
		t.Errorf("%s: %d loads, want %d", key, n, loads)
	}
}

// Contract: F7
func TestNotFoundLivesASecondAndFoundAMinute(t *testing.T) {
	for _, processes := range []int{1, 3} {
		for _, opt := range []onefill.Option{nil, onefill.StaleFor(time.Hour)} { // which is for values
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, processes)
				src := &countingSource{}
				groups := inAll(t, all, "users", src.load, onefill.TTL(time.Minute), onefill.NotFoundTTL(time.Second), onefill.HotTTL(time.Minute),
					onefill.Jitter(0), onefill.Beta(-1), opt)
				keys := keysOf(all[processes-1], "users", 2)
				there, missing := keys[0], keys[1]
				everywhere := func(key, want string, loads int) {
					t.Helper()
					for _, g := range groups {
						finds(t, g, src, key, want, loads)
					}
				}
				everywhere(there, there+"/1", 1)
				src.fail(fmt.Errorf("row: %w", onefill.ErrNotFound))
				everywhere(missing, "", 1)
				time.Sleep(time.Second - 1)
				everywhere(missing, "", 1)
				if _, ok := groups[0].Peek(missing); ok {
					t.Error("Peek shows a value")
				}
				time.Sleep(11 * time.Millisecond)
				everywhere(missing, "", 2)
				src.fail(nil)
				time.Sleep(1010 * time.Millisecond)
				everywhere(missing, missing+"/3", 3) // found from now on, with a value's life
				time.Sleep(50 * time.Second)
				everywhere(there, there+"/1", 1)
				everywhere(missing, missing+"/3", 3)
			})
		}
	}
}

// Contract: F2, F7
func TestLoaderSaysHowLongNotFoundIsRemembered(t *testing.T) {
	for name, tc := range map[string]struct {
		group time.Duration // NotFoundTTL
		say   func(*onefill.Fill)
		lives time.Duration
	}{
		"NotFound":               {time.Second, func(f *onefill.Fill) { f.NotFound() }, time.Second},
		"NotFound, off":          {0, func(f *onefill.Fill) { f.NotFound() }, 0},
		"NotFound, SetTTL(1m)":   {0, func(f *onefill.Fill) { f.NotFound(); f.SetTTL(time.Minute) }, time.Minute},
		"NotFound, SetTTL(0)":    {time.Hour, func(f *onefill.Fill) { f.NotFound(); f.SetTTL(0) }, 0},
		"NotFound, SetTTL(-1ns)": {time.Hour, func(f *onefill.Fill) { f.NotFound(); f.SetTTL(-1) }, 0},
		"NotFound, DoNotStore":   {time.Hour, func(f *onefill.Fill) { f.NotFound(); f.DoNotStore() }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 2)
			src := &countingSource{}
			groups := inAll(t, all, "users", func(ctx context.Context, key string) (string, error) {
				tc.say(onefill.FillFrom(ctx))
				return src.load(ctx, key)
			}, onefill.NotFoundTTL(tc.group), onefill.HotTTL(time.Hour), onefill.Jitter(0), onefill.Beta(-1))
			key := keyOf(all[1], "users")
			for _, g := range groups {
				if _, err := g.Get(t.Context(), key); !errors.Is(err, onefill.ErrNotFound) {
					t.Errorf("%s: %v", name, err)
				}
			}
			loads := 1
			if tc.lives == 0 {
				loads = 2 // one for each
			}
			if n := src.loads(key); n != loads {
				t.Errorf("%s: %d loads for two reads", name, n)
			}
			if tc.lives > 0 {
				time.Sleep(tc.lives - 1)
				finds(t, groups[0], src, key, "", loads)
				time.Sleep(11 * time.Millisecond)
			}
			finds(t, groups[0], src, key, "", loads+1)
		})
	}
}

// Contract: F7, F3
func TestNotFoundIsRefreshedEarlyLikeAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &countingSource{took: slow}
		src.fail(onefill.ErrNotFound)
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.NotFoundTTL(5*slow))
		for i := range 20 * 50 {
			began := time.Now()
			if _, err := g.Get(t.Context(), "key"); !errors.Is(err, onefill.ErrNotFound) {
				t.Fatal(err)
			}
			if wait := time.Since(began); i > 0 && wait > 0 {
				t.Fatalf("read %d waited for %v", i, wait)
			}
			time.Sleep(slow / 10)
		}
		if s := g.Stats(); s.RefreshErrors != 0 || s.LoadErrors != 0 || s.NotFound+1 < s.Loads || s.Refreshes < 15 {
			t.Errorf("%+v", s)
		}
	})
}
