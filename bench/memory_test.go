package bench

// BenchmarkMemory: how many bytes an entry costs beyond its key and its value.

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
)

const (
	memoryEntries   = 1_000_000
	memoryKeySize   = 13
	memoryValueSize = 100
)

// BenchmarkMemory fills a cache with a million entries, keys of 13 and values of 100 bytes, and reports how far the heap grew for each beyond those 113.
// The rounding of the allocator is part of it: such a key takes 16 bytes and such a value 112. ns/op means nothing here: run with -benchtime 1x.
//
// Each cache is weighed in a process of its own, because golang/groupcache never lets go of a group and because nothing else then moves the heap.
func BenchmarkMemory(b *testing.B) {
	for _, name := range []string{"onefill", "groupcache", "otter"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				overhead, err := strconv.ParseFloat(startSecond(b, "weigh", name), 64)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(overhead, "overhead-B/entry")
			}
		})
	}
}

// weigh is a role: it fills the cache that its argument names and speaks the overhead of an entry in bytes.
func weigh(out io.Writer, args []string) error {
	at := slices.IndexFunc(caches, func(c cache) bool { return len(args) == 1 && c.name == args[0] })
	if at < 0 {
		return fmt.Errorf("no cache %q", args)
	}
	overhead, err := weighCache(caches[at])
	if err != nil {
		return err
	}
	return speak(out, strconv.FormatFloat(overhead, 'f', 1, 64))
}

func weighCache(cache cache) (overhead float64, err error) {
	var loads atomic.Int64
	before := heap()
	get, closeCache, err := cache.open(memoryEntries, memoryKeySize+memoryValueSize, func(key string) ([]byte, error) {
		loads.Add(1)
		return makeValue(key, memoryValueSize), nil
	})
	if err != nil {
		return 0, err
	}
	defer closeCache()
	for pass := range 2 { // the second shows that the first filled it: nothing is loaded again
		for i := range memoryEntries {
			if size, err := get(fmt.Sprintf("key-%09d", i)); err != nil || size != memoryValueSize {
				return 0, fmt.Errorf("entry %d has %d bytes, %v", i, size, err)
			}
		}
		if pass == 0 {
			overhead = float64(heap()-before)/memoryEntries - memoryKeySize - memoryValueSize
		}
	}
	if n := loads.Load(); n != memoryEntries {
		return 0, fmt.Errorf("%d loads for %d entries: the cache does not hold them all", n, memoryEntries)
	}
	return overhead, nil
}

// heap returns the bytes of living objects. The first collection only moves what sync.Pools hold to where the second frees it.
func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
