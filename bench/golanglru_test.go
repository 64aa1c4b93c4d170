package bench

// hashicorp/golang-lru as a contender: not a loading cache, but what many put beside one.

import lru "github.com/hashicorp/golang-lru/v2"

// openGolangLRU opens a plain LRU, bounded by entries, without expiry. A hit takes its one lock, finds the entry in a map and moves it to the front of a
// list. Concurrent misses would each load. The slice handed out is the cache's own.
func openGolangLRU(entries, _ int, load load) (read, func(), error) {
	cache, err := lru.New[string, []byte](entries)
	if err != nil {
		return nil, nil, err
	}
	return func(key string) (int, error) {
		if value, ok := cache.Get(key); ok {
			return len(value), nil
		}
		value, err := load(key)
		if err != nil {
			return 0, err
		}
		cache.Add(key, value)
		return len(value), nil
	}, func() {}, nil
}
