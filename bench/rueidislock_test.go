package bench

// rueidislock as a contender, set up for one Redis of version 7 as its README advises. It waits to be told by Redis, and renews what it holds. Its
// TryNextAfter is raised: with the default of 20 ms, a question that takes longer on a busy machine is given up, and who was alone then waits for a message
// that never comes.

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// openRueidislock waits for the message that Redis sends about a key that changed.
func openRueidislock(b *testing.B, addr string) lockFunc {
	b.Helper()
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   5 * time.Second,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(locker.Close)
	return func(ctx context.Context) (func() error, error) {
		_, cancel, err := locker.WithContext(ctx, mutexName)
		if err != nil {
			return nil, err
		}
		return func() error { cancel(); return nil }, nil
	}
}
