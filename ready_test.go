package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// Contract: O6
func TestReadyWaitsForTheFirstMembersAndNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := make(changing, 1)
		pool, err := peers.NewPool("http://127.0.0.1:7946", list, peers.Config{})
		if err != nil {
			t.Fatal(err)
		}
		m := newMesh(t, onefill.Config{Peers: pool})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Ready(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("before anything is known: %v", err)
		}
		list <- believes{"http://127.0.0.1:7946"}
		if err := m.Ready(t.Context()); err != nil {
			t.Errorf("once the members are known: %v", err)
		}
	})
}

// Contract: O6
func TestRefreshWarmsAsManyAtATimeAsMaxLoadsAllows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", func(_ context.Context, key string) (string, error) {
			now := running.Add(1)
			for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
			}
			time.Sleep(time.Second)
			running.Add(-1)
			return key, nil
		}, onefill.MaxLoads(3))
		keys := make([]string, 20)
		for i := range keys {
			keys[i] = fmt.Sprint("key ", i)
		}
		if err := g.Refresh(t.Context(), keys...); err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if v, ok := g.Peek(key); !ok || v != key {
				t.Errorf("%q is not warm", key)
			}
		}
		if n := most.Load(); n != 3 {
			t.Errorf("%d loads at a time", n)
		}
	})
}
