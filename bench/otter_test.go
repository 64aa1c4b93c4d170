package bench

// otter as a contender.

import (
	"context"
	"time"

	"github.com/maypok86/otter/v2"
)

// openOtter opens a cache that does what onefill's does: bounded by bytes, entries that expire some time after they were written. A hit reads the clock,
// finds the entry in a concurrent map and notes the read in a buffer, from which a W-TinyLFU policy learns. The slice handed out is the cache's own.
func openOtter(entries, entryBytes int, load load) (read, func(), error) {
	cache, err := otter.New(&otter.Options[string, []byte]{
		MaximumWeight:    uint64(entries) * uint64(entryBytes) * 2,
		Weigher:          func(key string, value []byte) uint32 { return uint32(len(key) + len(value)) },
		ExpiryCalculator: otter.ExpiryWriting[string, []byte](time.Hour),
	})
	if err != nil {
		return nil, nil, err
	}
	loader := otter.LoaderFunc[string, []byte](func(_ context.Context, key string) ([]byte, error) { return load(key) })
	get := func(key string) (int, error) {
		value, err := cache.Get(context.Background(), key, loader)
		return len(value), err
	}
	return get, func() { cache.StopAllGoroutines() }, nil
}
