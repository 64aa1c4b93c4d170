package bench

// BenchmarkTierHit: what it costs to read a value that Redis has and this process does not.

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/redistest"
)

const (
	tierKeys   = 4096
	warmReads  = 20       // by which connections are made; the measured reads begin behind them
	tierMemory = 64 << 10 // bytes: so little that what was read is forgotten long before its turn comes again
)

// BenchmarkTierHit reads 4,096 values of 128 bytes, in random order, from a Redis on the same machine. Another mesh has put them there. The reading mesh has
// memory for a few of them, so that every read goes to Redis; the benchmark fails where one did not. goredis reads the same bytes, onefill's envelopes, with a
// bare GET and does nothing with them.
func BenchmarkTierHit(b *testing.B) {
	for _, c := range []struct {
		name string
		open func(b *testing.B, addr string) (keys []string, get read)
	}{
		{"onefill", openOnefillTierHits},
		{"goredis", openGoRedisGets},
	} {
		b.Run(c.name, func(b *testing.B) {
			for _, delay := range delays {
				b.Run("delay="+delay.name, func(b *testing.B) {
					server := redistest.Start(b)
					fillTier(b, server.Addr())
					addr := server.Addr()
					if delay.each > 0 {
						addr = startProxy(b, addr, delay.each).addr()
					}
					keys, get := c.open(b, addr)
					keys = shuffled(keys)
					warm(b, keys[:warmReads], get)
					b.ReportAllocs()
					for i := warmReads; b.Loop(); i++ {
						if size, err := get(keys[i%len(keys)]); err != nil || size < valueSize {
							b.Fatalf("got %d bytes, %v", size, err)
						}
					}
				})
			}
		})
	}
}

// openGoRedisGets reads the values as they lie in Redis.
func openGoRedisGets(b *testing.B, addr string) ([]string, read) {
	b.Helper()
	rdb := openRedis(b, addr)
	var keys []string
	for scan := rdb.Scan(b.Context(), 0, onefillNamespace+":*:v:*", 1000).Iterator(); scan.Next(b.Context()); {
		keys = append(keys, scan.Val())
	}
	if len(keys) != tierKeys {
		b.Fatalf("%d values in Redis, want %d", len(keys), tierKeys)
	}
	return keys, func(key string) (int, error) {
		value, err := rdb.Get(context.Background(), key).Bytes()
		return len(value), err
	}
}

// openRedis returns a client with go-redis's default options.
func openRedis(b *testing.B, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { rdb.Close() })
	return rdb
}
