// What becomes of a load that its callers have left, and of those in other clusters who wait for it.

package onefill_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
)

// twoClusters adds the same group to two processes that share nothing but a tier.
func twoClusters(t *testing.T, load onefill.Loader[string], opts ...onefill.Option) (a, b *onefill.Group[string]) {
	t.Helper()
	tier := l2.Memory()
	return newGroup(t, newMesh(t, onefill.Config{Tier: tier}), "users", load, opts...), newGroup(t, newMesh(t, onefill.Config{Tier: tier}), "users", load, opts...)
}

// leaves is a Get whose caller leaves after d.
func leaves(g *onefill.Group[string], key string, d time.Duration) <-chan error {
	left := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		_, err := g.Get(ctx, key)
		left <- err
	}()
	return left
}

// Contract: R4, R5, L2
func TestLoadThatItsClusterCancelsIsTakenOverByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &countingSource{took: 2 * time.Second}
		a, b := twoClusters(t, src.load, onefill.CancelAbandoned())
		left := leaves(a, "key", time.Second)
		time.Sleep(time.Second / 2)
		if v, err := b.Get(t.Context(), "key"); v != "key/2" || err != nil {
			t.Errorf("who waited in the other cluster: %q, %v", v, err)
		}
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who left: %v", err)
		}
	})
}

// Contract: R4, R18, L2
func TestClaimOfAFlightThatLeavesTheQueueIsTakenOverByAnotherCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &countingSource{took: 5 * time.Second}
		a, b := twoClusters(t, src.load, onefill.MaxLoads(1))
		other := leaves(a, "other", time.Minute)
		time.Sleep(time.Second / 10)
		left := leaves(a, "key", time.Second)
		time.Sleep(time.Second / 2)
		if v, err := b.Get(t.Context(), "key"); v != "key/1" || err != nil {
			t.Errorf("who waited in the other cluster: %q, %v", v, err)
		}
		if err := <-left; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("who left: %v", err)
		}
		if err := <-other; err != nil {
			t.Error(err)
		}
	})
}

// Contract: R5, R15
func TestBatchThatNobodyWaitsForIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		batch := func(ctx context.Context, _ []string) (map[string]string, error) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			ended <- ctx.Err()
			return nil, ctx.Err()
		}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", (&countingSource{}).load, onefill.CancelAbandoned(), onefill.LoadBatch(batch))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.GetMulti(ctx, []string{"a", "b"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the batch's context has ended with %v", err)
		}
	})
}
