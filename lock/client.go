// This file is the Client: what all locks of a process share. How a lease is got is in acquire.go, what it is in lease.go.

package lock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/lease"
	"github.com/onefill/onefill/internal/tasks"
)

// Client makes locks. It has one subscription and one renewal loop, whatever the number of locks and leases; a process needs one Client.
type Client struct {
	config  Config
	store   store
	tasks   *tasks.Set
	keeper  *lease.Keeper[*tenure]
	queue   lease.Queue
	highest [buckets]atomic.Uint64 // the highest fence seen in each bucket: the floor for the next
	logger  *slog.Logger

	closing sync.Once
	err     error // what Close found
}

// New returns a Client on a standalone server, a Sentinel group or a Cluster. It refuses, with ErrInvalid, a nil client, one that reads from replicas, a
// Ring, and a Config out of range. It does not wait for Redis; an eviction policy under which Redis may drop a lock that is held is logged as a warning. The
// Redis client stays the caller's to close, after the Client.
func New(client redis.UniversalClient, config Config) (*Client, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	c := newClient(config)
	s := newRedisStore(client, c.tasks, config.Timeout)
	c.store = s
	c.tasks.Go(func(ctx context.Context) { s.warnOfEviction(ctx, c.logger) })
	return c, nil
}

// Local returns a Client whose locks hold among its own callers only: for tests, and for programs of one process. Everything else is as with Redis.
func Local() *Client {
	config, _ := Config{}.withDefaults()
	c := newClient(config)
	c.store = newLocalStore()
	return c
}

func newClient(config Config) *Client {
	c := &Client{config: config, tasks: tasks.New(), logger: config.Logger}
	c.keeper = lease.NewKeeper(c.tasks, c.renew)
	return c
}

// closeWait bounds how long Close waits for calls that a Redis server leaves unanswered.
const closeWait = 5 * time.Second

// Close releases the leases still held (except those whose Token has been taken, which are left to whoever adopts them), ends their contexts with the cause
// ErrClosed, and gives ErrClosed to everyone who waits. It waits for the Client's loops: one that renews, two for the subscription, and calls to Redis
// that were given up; after 5 s it returns an error instead. Calling it again returns the same.
func (c *Client) Close() error {
	c.closing.Do(func() {
		c.queue.Shut(ErrClosed)
		c.releaseAll()
		ctx, cancel := context.WithTimeout(context.Background(), closeWait)
		defer cancel()
		if err := c.tasks.Close(ctx); err != nil {
			c.err = errors.New("lock: closed with calls to Redis still unanswered")
		}
	})
	return c.err
}

// releaseAll gives back what is held, for no longer than one question to Redis may take: what remains ends with its TTL.
func (c *Client) releaseAll() {
	ctx, cancel := context.WithTimeout(context.Background(), c.config.Timeout)
	defer cancel()
	for _, t := range c.keeper.Kept() {
		handed := t.end(ErrClosed)
		if c.keeper.Drop(t.held) && !handed && ctx.Err() == nil {
			_, _ = c.store.leave(ctx, t.holding())
		}
	}
	c.tasks.Stop()
	for _, t := range c.keeper.Kept() { // granted meanwhile
		t.end(ErrClosed)
	}
}

// closed reports whether Close has begun.
func (c *Client) closed() bool { return c.tasks.Context().Err() != nil }

// renew is one round of the keeper's.
func (c *Client) renew(ctx context.Context, round []lease.Renewal[*tenure], bound time.Duration) error {
	all := make([]holding, len(round))
	for i, r := range round {
		all[i] = holding{room: r.Lease.room, token: r.Lease.token, ttl: r.TTL}
	}
	kept, err := c.store.renew(ctx, bound, all)
	if err != nil {
		return err
	}
	for i := range round {
		round[i].Kept = kept[i]
	}
	return nil
}

// saw notes a fence, so that later ones in its bucket are higher even where the store has lost count.
func (c *Client) saw(r room, fence uint64) {
	highest := &c.highest[r.bucket]
	for {
		old := highest.Load()
		if fence <= old || highest.CompareAndSwap(old, fence) {
			return
		}
	}
}

// lock is what the locks of every kind have in common.
type lock struct {
	client *Client
	room   room
	settings
}

func (c *Client) lock(k kind, name string, options []Option) lock {
	l := lock{client: c, room: newRoom(c.config.Prefix, k, name), settings: settings{ttl: c.config.TTL}}
	l.refuse(checkName(name))
	for _, o := range options {
		o(&l.settings)
	}
	return l
}
