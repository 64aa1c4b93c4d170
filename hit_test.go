// What a hit costs, and what the memory does with values: which it keeps, for how long, and which have to leave.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

type user struct {
	Name string
	Tags []string
}

// Contract: R1
func TestFreshHitAllocatesNothing(t *testing.T) {
	trips := &recorder{}
	m := newMesh(t, onefill.Config{Observer: trips})
	ctx := context.Background()
	bytes := newGroup(t, m, "bytes", func(context.Context, string) ([]byte, error) { return []byte("value"), nil })
	text := newGroup(t, m, "text", func(context.Context, string) (string, error) { return "value", nil })
	pointers := newGroup(t, m, "pointers", func(context.Context, string) (*user, error) { return &user{Name: "a"}, nil })
	structs := newGroup(t, m, "structs", func(context.Context, string) (user, error) { return user{Name: "a"}, nil })
	for name, get := range map[string]func() error{
		"[]byte": func() error { _, err := bytes.Get(ctx, "key"); return err },
		"string": func() error { _, err := text.Get(ctx, "key"); return err },
		"*user":  func() error { _, err := pointers.Get(ctx, "key"); return err },
		"user":   func() error { _, err := structs.Get(ctx, "key"); return err },
	} {
		if err := get(); err != nil {
			t.Fatal(err)
		}
		before := len(trips.trips())
		allocs := testing.AllocsPerRun(1000, func() {
			if get() != nil {
				t.Error("a hit failed")
			}
		})
		if allocs != 0 {
			t.Errorf("a hit on a %s allocates %v times", name, allocs)
		}
		if after := len(trips.trips()); after != before {
			t.Errorf("hits on a %s made %d trips", name, after-before)
		}
	}
}

// Contract: R1
func TestFreshHotCopyIsAHitWithoutATrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{}
		groups := inAll(t, all, "users", db.load)
		key := keyOf(all[1], "users")
		for range 3 {
			if v, err := groups[0].Get(t.Context(), key); err != nil || v != key+"/1" {
				t.Fatal(v, err)
			}
		}
		if got := all[0].trips.path(); got != "get get/fetch" {
			t.Errorf("three Gets made the trips %q", got)
		}
		if s := groups[0].Stats(); s.Hits != 2 || s.Fetches != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}

// Contract: R8
func TestZeroValuesAreValues(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	zeroIsAValue(t, m, "int", 0)
	zeroIsAValue(t, m, "string", "")
	zeroIsAValue(t, m, "struct", user{})
	zeroIsAValue[*user](t, m, "pointer", nil)
	zeroIsAValue[error](t, m, "interface", nil)
	zeroIsAValue[[]byte](t, m, "nil bytes", nil)
	zeroIsAValue(t, m, "empty bytes", []byte{})
	zeroIsAValue[map[string]int](t, m, "map", nil)
	zeroIsAValue(t, m, "time", time.Time{})
}

func zeroIsAValue[V any](t *testing.T, m *onefill.Mesh, name string, zero V) {
	t.Helper()
	loads := 0
	g := newGroup(t, m, name, func(context.Context, string) (V, error) { loads++; return zero, nil })
	for range 2 {
		v, err := g.Get(t.Context(), "key")
		if err != nil || fmt.Sprintf("%v", v) != fmt.Sprintf("%v", zero) {
			t.Errorf("%s: got %v, %v", name, v, err)
		}
	}
	if _, ok := g.Peek("key"); !ok || loads != 1 {
		t.Errorf("%s: %d loads for two Gets", name, loads)
	}
}

// Contract: R8
func TestZeroValuesTravelBetweenProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		loads := 0
		pointers := inAll(t, all, "pointers", func(context.Context, string) (*user, error) { loads++; return nil, nil })
		bytes := inAll(t, all, "bytes", func(context.Context, string) ([]byte, error) { loads++; return nil, nil })
		for range 2 {
			if v, err := pointers[0].Get(t.Context(), keyOf(all[1], "pointers")); v != nil || err != nil {
				t.Error(v, err)
			}
			if v, err := bytes[0].Get(t.Context(), keyOf(all[1], "bytes")); len(v) != 0 || err != nil {
				t.Error(v, err)
			}
		}
		if loads != 2 {
			t.Errorf("%d loads of two keys", loads)
		}
	})
}

// Contract: R16
func TestReplacingAKeyLeaksNoBytes(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	g := newGroup(t, m, "users", func(context.Context, string) (string, error) { return "value", nil })
	if _, err := g.Get(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	one := g.Stats().Bytes
	for range 10_000 {
		if err := g.Set(t.Context(), "key", "value"); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		if err := g.Refresh(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Stats(); s.Bytes != one || s.Entries != 1 {
		t.Errorf("%d bytes in %d entries after 11,000 replacements, %d at first", s.Bytes, s.Entries, one)
	}
}

// Contract: R16
func TestReplacingAKeyForgetsItsOldExpiry(t *testing.T) {
	for name, replace := range map[string]func(context.Context, *onefill.Group[string]) error{
		"Set": func(ctx context.Context, g *onefill.Group[string]) error {
			return g.Set(ctx, "key", "new", onefill.SetTTL(time.Minute))
		},
		"Refresh": func(ctx context.Context, g *onefill.Group[string]) error { return g.Refresh(ctx, "key") },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMesh(t, onefill.Config{})
			loads := 0
			g := newGroup(t, m, "users", func(ctx context.Context, _ string) (string, error) {
				if loads++; loads > 1 {
					onefill.FillFrom(ctx).SetTTL(time.Minute)
				}
				return []string{"old", "new"}[loads-1], nil
			}, onefill.TTL(50*time.Millisecond), onefill.Jitter(0))
			if _, err := g.Get(t.Context(), "key"); err != nil {
				t.Fatal(err)
			}
			if err := replace(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			time.Sleep(80 * time.Millisecond)
			if v, ok := g.Peek("key"); !ok || v != "new" {
				t.Errorf("%s: after the first expiry there is %q, %t", name, v, ok)
			}
			time.Sleep(time.Minute)
			if v, ok := g.Peek("key"); ok {
				t.Errorf("%s: after its own expiry there is %q", name, v)
			}
		})
	}
}

// Contract: R14, R16
func TestValueLargerThanTheCacheIsReturnedAndHarmsNobody(t *testing.T) {
	m := newMesh(t, onefill.Config{MaxBytes: 1 << 20})
	large := strings.Repeat("x", 2<<20)
	g := newGroup(t, m, "users", func(_ context.Context, key string) (string, error) {
		if key == "large" {
			return large, nil
		}
		return key, nil
	})
	for i := range 100 {
		if _, err := g.Get(t.Context(), fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	before := g.Stats()
	if v, err := g.Get(t.Context(), "large"); err != nil || v != large {
		t.Fatal(len(v), err)
	}
	if after := g.Stats(); after.Entries != before.Entries || after.Bytes != before.Bytes {
		t.Errorf("a large value left %d entries of %d", after.Entries, before.Entries)
	}
}

// Contract: R14
func TestValueOverMaxValueBytesIsReturnedCountedAndNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		loads := 0
		groups := inAll(t, all, "users", func(context.Context, string) (string, error) {
			loads++
			return strings.Repeat("x", 100), nil
		}, onefill.MaxValueBytes(99))
		for n := range 2 {
			if v, err := groups[0].Get(t.Context(), keyOf(all[1], "users")); err != nil || len(v) != 100 {
				t.Fatal(len(v), err)
			}
			if loads != n+1 {
				t.Errorf("%d loads for %d Gets", loads, n+1)
			}
		}
		for i, g := range groups {
			if s := g.Stats(); s.TooLarge != 2 || s.Entries != 0 {
				t.Errorf("process %d: %d too large, %d entries", i, s.TooLarge, s.Entries)
			}
		}
	})
}

// Contract: R14
func TestKeyOverMaxKeyBytesIsRefusedBeforeAnyTrip(t *testing.T) {
	trips := &recorder{}
	m := newMesh(t, onefill.Config{Observer: trips})
	db := &countingSource{}
	g := newGroup(t, m, "users", db.load)
	key := strings.Repeat("k", onefill.DefaultMaxKeyBytes)
	if v, err := g.Get(t.Context(), key); err != nil || v != key+"/1" {
		t.Errorf("a key of MaxKeyBytes: %d bytes, %v", len(v), err)
	}
	before := len(trips.trips())
	_, errGet := g.Get(t.Context(), key+"k")
	_, errMulti := g.GetMulti(t.Context(), []string{key + "k"})
	for _, err := range []error{errGet, errMulti, g.Set(t.Context(), key+"k", "v"), g.Refresh(t.Context(), key+"k")} {
		if !errors.Is(err, onefill.ErrKeyTooLong) {
			t.Errorf("a longer key: %v", err)
		}
	}
	if len(trips.trips()) != before || db.total() != 1 {
		t.Error("a key that is too long made a trip")
	}
}

// Contract: R17
func TestOnePassOverColdKeysLeavesTheHotSet(t *testing.T) {
	m := newMesh(t, onefill.Config{MaxBytes: 1 << 20})
	g := newGroup(t, m, "users", func(_ context.Context, key string) (string, error) { return strings.Repeat("x", 500), nil })
	read := func(key string) {
		t.Helper()
		if _, err := g.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	var hot []string
	for i := range 200 {
		hot = append(hot, fmt.Sprintf("hot-%d", i))
	}
	for range 3 {
		for _, key := range hot {
			read(key)
		}
	}
	for i := range 10_000 {
		read(fmt.Sprintf("cold-%d", i))
		read(hot[i%len(hot)])
	}
	if lost := slices.DeleteFunc(slices.Clone(hot), func(key string) bool { _, ok := g.Peek(key); return ok }); len(lost) > 0 {
		t.Errorf("a pass over 10,000 cold keys pushed out %d of %d hot ones", len(lost), len(hot))
	}
	if loads := g.Stats().Loads; loads != 10_200 {
		t.Errorf("%d loads: some of the hot keys had to be loaded again", loads)
	}
}

// Contract: O4
func TestMemoryStaysWithinMaxBytes(t *testing.T) {
	const most = 1 << 20
	m := newMesh(t, onefill.Config{MaxBytes: most})
	load := func(_ context.Context, key string) (string, error) { return strings.Repeat(key, 50), nil }
	common := newGroup(t, m, "common", load)
	own := newGroup(t, m, "own", load, onefill.MaxBytes(most/4))
	for i := range 4_000 {
		for _, g := range []*onefill.Group[string]{common, own} {
			if _, err := g.Get(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		if i%500 != 0 {
			continue
		}
		if s := m.Stats(); s.Bytes > most || s.MaxBytes != most || s.Groups["own"].Bytes > most/4 {
			t.Fatalf("%d bytes of %d, %d of them of a group with %d", s.Bytes, s.MaxBytes, s.Groups["own"].Bytes, most/4)
		}
	}
	if s := m.Stats(); s.Bytes < most/2 {
		t.Errorf("only %d bytes of %d are used", s.Bytes, most)
	}
}
