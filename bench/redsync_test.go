package bench

// go-redsync as a contender, with one Redis and its defaults: it asks every 50 to 250 ms, by chance, 32 times. It renews nothing by itself.

import (
	"context"
	"errors"
	"testing"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
)

// openRedsync begins again where 32 questions were not enough.
func openRedsync(b *testing.B, addr string) lockFunc {
	client := redsync.New(goredis.NewPool(openRedis(b, addr)))
	return func(ctx context.Context) (func() error, error) {
		for {
			mutex := client.NewMutex(mutexName)
			err := mutex.LockContext(ctx)
			var taken *redsync.ErrTaken
			if ctx.Err() == nil && (errors.Is(err, redsync.ErrFailed) || errors.As(err, &taken)) {
				continue
			}
			if err != nil {
				return nil, err
			}
			return func() error {
				if ok, err := mutex.Unlock(); err != nil || !ok {
					return errors.Join(errors.New("redsync: not unlocked"), err)
				}
				return nil
			}, nil
		}
	}
}
