package bench

// sturdyc as a contender.

import (
	"context"
	"time"

	"github.com/viccon/sturdyc"
)

// openSturdyc opens a cache as sturdyc's README does: 10 shards, a life of two hours, a tenth evicted when full. It is bounded by entries, and has twice as
// many places as are asked for since a shard evicts when its own part is full. A hit takes the read lock of a shard and compares the clock. The slice handed
// out is the cache's own.
func openSturdyc(entries, _ int, load load) (read, func(), error) {
	const shards, evicted = 10, 10
	cache := sturdyc.New[[]byte](2*entries, shards, 2*time.Hour, evicted)
	return func(key string) (int, error) {
		value, err := cache.GetOrFetch(context.Background(), key, func(context.Context) ([]byte, error) { return load(key) })
		return len(value), err
	}, func() {}, nil
}
