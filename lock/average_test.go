package lock_test

import (
	"context"
	"math"
	"sync"
	"testing"

	"github.com/onefill/onefill/lock"
)

// Contract: K11
func TestCountAndTotalChangeTogether(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		a := c.Average("latency")
		mean, count, err := a.Get(w.t.Context())
		if mean != 0 || count != 0 || err != nil {
			w.t.Fatalf("empty: %v of %d, %v", mean, count, err)
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if err := a.Add(context.Background(), 2.5); err != nil {
					w.t.Error(err)
				}
				if mean, _, err := a.Get(context.Background()); mean != 2.5 || err != nil {
					w.t.Errorf("mean %v, %v", mean, err)
				}
			})
		}
		all.Wait()
		if mean, count, err = a.Get(w.t.Context()); mean != 2.5 || count != 100 || err != nil {
			w.t.Fatalf("%v of %d, %v", mean, count, err)
		}
	})
}

// Contract: K11
func TestANumberThatIsRefusedIsNotCounted(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		a := c.Average("a")
		want(w.t, a.Add(w.t.Context(), 1), nil)
		for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			want(w.t, a.Add(w.t.Context(), x), lock.ErrInvalid)
		}
		if mean, count, err := a.Get(w.t.Context()); mean != 1 || count != 1 || err != nil {
			w.t.Fatalf("%v of %d, %v", mean, count, err)
		}
	})
}
