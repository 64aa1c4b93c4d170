package cache

// This file holds the benchmarks of the cache alone; those beside other caches are in the module bench.

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkGet(b *testing.B) {
	c := New(4 * minShare)
	g := c.NewGroup(anyName(), nil)
	keys := make([]string, 16_384)
	for i, at := range rand.Perm(len(keys)) {
		keys[at] = fmt.Sprintf("benchmark:key:%07d", i)
	}
	for i := range keys {
		c.put(entry(g, fmt.Sprintf("benchmark:key:%07d", i), 1, 128))
	}
	clock := c.Clock()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := rand.IntN(len(keys)); pb.Next(); i++ {
			key := keys[i%len(keys)]
			if e := c.Get(c.Hash(g, key), g, key); e == nil || e.Fresh < clock.Now() {
				b.Error("not there")
			}
		}
	})
}

func BenchmarkStoreIntoAFullCache(b *testing.B) {
	c := New(4 * minShare)
	g := c.NewGroup(anyName(), nil)
	value := string(make([]byte, 128))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.put(&Entry{Key: numbered("key", i), Group: g, Data: value, Fresh: hour, Number: 1})
	}
}
