package bench

// BenchmarkHit: what a read of a cached value costs within one process.

import (
	"sync/atomic"
	"testing"
)

// A cache is a contender that lives within one process. open makes one that is large enough to keep that many entries of entryBytes each, key and
// value, and returns how to read it and how to be rid of it.
type cache struct {
	name string
	open func(entries, entryBytes int, load load) (get read, closeCache func(), err error)
}

var caches = []cache{
	{"onefill", openOnefill},
	{"groupcache", openGroupcache},
	{"otter", openOtter},
	{"sturdyc", openSturdyc},
	{"golanglru", openGolangLRU},
}

const (
	hitKeys   = 16_384
	valueSize = 128
)

// BenchmarkHit reads 16,384 cached keys of 21 bytes with values of 128 bytes, in random order, from as many goroutines as there are cores. Every
// contender is asked through the call that also loads on a miss, as a program would ask it, and a load in the measured part fails the benchmark.
func BenchmarkHit(b *testing.B) {
	for _, cache := range caches {
		b.Run(cache.name, func(b *testing.B) { measureHit(b, cache) })
	}
}

func measureHit(b *testing.B, cache cache) {
	var loads, readers atomic.Int64
	keys := userKeys(hitKeys)
	get, closeCache, err := cache.open(hitKeys, len(keys[0])+valueSize, func(key string) ([]byte, error) {
		loads.Add(1)
		return makeValue(key, valueSize), nil
	})
	if err != nil {
		b.Fatal(err)
	}
	defer closeCache()
	warm(b, keys, get)

	order := shuffled(keys)
	loads.Store(0)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		next := int(readers.Add(1)) * 7919 // readers walk the same order from different places
		for pb.Next() {
			next++
			if size, err := get(order[next%hitKeys]); err != nil || size != valueSize {
				b.Errorf("got %d bytes, %v", size, err)
				return
			}
		}
	})
	b.StopTimer()
	if n := loads.Load(); n != 0 {
		b.Errorf("%d loads while only hits were to be measured", n)
	}
}

// warm reads every key once.
func warm(tb testing.TB, keys []string, get read) {
	tb.Helper()
	for _, key := range keys {
		if _, err := get(key); err != nil {
			tb.Fatalf("filling: %v", err)
		}
	}
}
