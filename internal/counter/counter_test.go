package counter_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/onefill/onefill/internal/counter"
)

func TestConcurrentAddsAreAllCounted(t *testing.T) {
	var c counter.Counter
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 1000 {
				c.Add(1)
			}
			c.Add(500)
		})
	}
	wg.Wait()
	if got := c.Load(); got != 50*1500 {
		t.Errorf("Load() = %d, want %d", got, 50*1500)
	}
}

// Contract: T5
func TestCountingAllocatesNothing(t *testing.T) {
	var c counter.Counter
	if n := testing.AllocsPerRun(1000, func() { c.Add(1) }); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
}

// BenchmarkAdd/striped should cost the same at -cpu 1 and 2; BenchmarkAdd/shared does not.
func BenchmarkAdd(b *testing.B) {
	b.Run("striped", func(b *testing.B) {
		var c counter.Counter
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				c.Add(1)
			}
		})
	})
	b.Run("shared", func(b *testing.B) {
		var n atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				n.Add(1)
			}
		})
	})
}

func ExampleCounter() {
	var hits counter.Counter
	hits.Add(1)
	hits.Add(2)
	fmt.Println(hits.Load())
	// Output: 3
}
