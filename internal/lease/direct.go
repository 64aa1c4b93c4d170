// This file runs a script in the caller's own goroutine where the client can be made to heed a deadline. Handing each call to a goroutine and its answer back, as
// Run does, costs as much processor time as the call itself.

package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// heeding returns a client over the same connections whose calls end with the deadline of their context, or nil where there is no way to one: a Cluster's
// client whose options do not ask for it. Only a client's copy is changed, before anyone uses it.
func heeding(client redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.Client:
		if c == nil || c.Options().ContextTimeoutEnabled {
			return client
		}
		same := c.WithTimeout(timeout)
		same.Options().ContextTimeoutEnabled = true
		if same.Options().ContextTimeoutEnabled && !c.Options().ContextTimeoutEnabled {
			return same
		}
	case *redis.ClusterClient:
		if c != nil && c.Options().ContextTimeoutEnabled {
			return client
		}
	}
	return nil
}

// Direct is Run with a bound of its own, where that is shorter than the Runner's, for callers whose ctx is hardly ever cancelled: a cancellation may be noticed
// as late as at the bound. late is told ErrNoAnswer where the outcome will never be known.
func (r *Runner) Direct(ctx context.Context, bound time.Duration, script *redis.Script, keys []string, args []any, late func(reply any, err error)) (any, error) {
	limited, cancel := context.WithTimeout(ctx, min(bound, r.timeout))
	defer cancel()
	if r.heeding == nil {
		reply, err := r.Run(limited, script, keys, args, late)
		if err != nil && ctx.Err() == nil && limited.Err() != nil {
			err = fmt.Errorf("%w (%v)", ErrNoAnswer, bound)
		}
		return reply, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply, err := script.Run(limited, r.heeding, keys, args...).Result()
	var network net.Error
	if err == nil || limited.Err() == nil && !(errors.As(err, &network) && network.Timeout()) {
		return reply, err
	}
	if late != nil {
		r.tasks.Go(func(context.Context) { late(nil, ErrNoAnswer) })
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w (%v)", ErrNoAnswer, bound)
}
