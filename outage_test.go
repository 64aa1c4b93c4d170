// A source that is down for long: stale values are served wherever they are wanted, in time, and stay in memory while they are.

package onefill_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// Contract: F4, F5, R15
func TestEveryReadOfAStaleValueWaitsNoLongerThanSoftTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: 10 * time.Second}
		groups := inAll(t, all, "users", src.load, onefill.TTL(time.Minute), onefill.Jitter(0), onefill.Beta(-1), onefill.StaleFor(time.Hour), onefill.SoftTimeout(slow))
		key := keyOf(all[0], "users")
		together(2, func(i int) (string, error) { return groups[i].Get(t.Context(), key) })
		time.Sleep(2 * time.Minute)
		src.fail(errDown)
		for i, g := range groups {
			gets(t, g, key, key+"/1", slow)
			time.Sleep(time.Minute)
			began := time.Now()
			values, err := g.GetMulti(t.Context(), []string{key})
			if took := time.Since(began); values[key] != key+"/1" || err != nil || took != slow {
				t.Errorf("process %d, GetMulti after %v: %v, %v", i, took, values, err)
			}
			time.Sleep(time.Minute)
		}
	})
}

// Contract: R17, F5
func TestStaleValuesThatAreReadAllTheTimeOutliveAPassOverColdKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{MaxBytes: 1 << 20})
		down := false
		hot := newGroup(t, m, "hot", func(context.Context, string) (string, error) {
			if down {
				return "", errDown
			}
			return "value", nil
		}, onefill.TTL(time.Minute), onefill.StaleFor(24*time.Hour), onefill.Beta(-1))
		cold := newGroup(t, m, "cold", func(context.Context, string) (string, error) { return strings.Repeat("x", 500), nil })
		read := func() {
			t.Helper()
			for i := range 100 {
				if _, err := hot.Get(t.Context(), fmt.Sprint(i)); err != nil {
					t.Fatalf("key %d: %v", i, err)
				}
			}
		}
		for range 5 {
			read()
			time.Sleep(time.Second)
		}
		synctest.Wait() // no load is under way
		down = true
		time.Sleep(2 * time.Minute)
		for i := range 4000 {
			if _, err := cold.Get(t.Context(), fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
			if i%50 == 0 {
				read()
				time.Sleep(20 * time.Millisecond)
			}
		}
		if cold.Stats().EvictedLive == 0 {
			t.Error("memory was never short")
		}
	})
}
