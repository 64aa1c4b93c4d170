package bench

// bsm/redislock as a contender. It has no default for waiting; 100 ms between two questions is what its examples wait. It renews nothing by itself.

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
)

const (
	redislockTTL   = 10 * time.Second
	redislockRetry = 100 * time.Millisecond
)

// openRedislock asks every 100 ms.
func openRedislock(b *testing.B, addr string) lockFunc {
	client := redislock.New(openRedis(b, addr))
	return func(ctx context.Context) (func() error, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for {
			lock, err := client.Obtain(ctx, mutexName, redislockTTL, &redislock.Options{RetryStrategy: redislock.LinearBackoff(redislockRetry)})
			if err == context.DeadlineExceeded && ctx.Err() == nil { // its own: it waits no longer than the TTL
				continue
			}
			if err != nil {
				return nil, err
			}
			return func() error { return lock.Release(context.Background()) }, nil
		}
	}
}
