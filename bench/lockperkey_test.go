package bench

// lock-per-key as a contender: the lock around a cache in Redis as everyone writes it, with go-redis. It is fit for nothing but to be measured: its lock can
// be taken away by a holder that is late, and who finds it held sleeps and asks again.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// openLockPerKey reads by GET, and on a miss takes a lock, looks again, loads, stores and lets go.
func openLockPerKey(b *testing.B, addr string) read {
	rdb := openRedis(b, addr)
	return func(key string) (int, error) {
		value, err := lockPerKey(context.Background(), rdb, key)
		return len(value), err
	}
}

func lockPerKey(ctx context.Context, rdb *redis.Client, key string) ([]byte, error) {
	for {
		value, err := rdb.Get(ctx, key).Bytes()
		if !errors.Is(err, redis.Nil) {
			return value, err
		}
		locked, err := rdb.SetNX(ctx, "lock:"+key, "locked", 30*time.Second).Result()
		if err != nil {
			return nil, err
		}
		if locked {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	defer rdb.Del(ctx, "lock:"+key)
	value, err := rdb.Get(ctx, key).Bytes() // stored by another while we took the lock?
	if !errors.Is(err, redis.Nil) {
		return value, err
	}
	value = makeValue(key, valueSize)
	return value, rdb.Set(ctx, key, value, time.Hour).Err()
}
