package bench

// onefill's lock as a contender, with its defaults.

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/lock"
)

// openOnefillLock waits to be woken, and renews what it holds.
func openOnefillLock(b *testing.B, addr string) lockFunc {
	mutex := openLockClient(b, openRedis(b, addr), lock.Config{}).Mutex(mutexName)
	return func(ctx context.Context) (func() error, error) {
		lease, err := mutex.Lock(ctx)
		if err != nil {
			return nil, err
		}
		return func() error { return lease.Release(context.Background()) }, nil
	}
}

func openLockClient(b *testing.B, rdb *redis.Client, config lock.Config) *lock.Client {
	b.Helper()
	client, err := lock.New(rdb, config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	return client
}
