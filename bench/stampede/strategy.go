// The ways to read a key through a Redis that many processes share. Except for onefill's they are what people write and publish, with go-redis: each caller
// goes its way alone, and the lock belongs to nobody in particular.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
)

const onefillStrategy = "onefill"

// get reads a key, in a process that is set up for it.
type get func(ctx context.Context, key string) (value, error)

// strategy is one of the ways.
type strategy struct {
	name string
	// open sets up the process. What it returns as done is to be called in the end.
	open func(p *process) (get get, done func(), err error)
	// sends are the commands, as Redis names them in INFO commandstats, that clients send. Others that it counts are called by scripts, or belong to the making
	// of connections.
	sends []string
}

var strategies = []strategy{
	{onefillStrategy, openOnefill, []string{"eval", "evalsha", "subscribe", "unsubscribe", "ping"}},
	{"lock-poll", alone(lockPoll), plainCommands},
	{"lock-sleep", alone(lockSleep), plainCommands},
	{"none", alone(unlocked), plainCommands},
}

var plainCommands = []string{"get", "set", "del"}

func strategyOf(name string) (strategy, bool) {
	for _, s := range strategies {
		if s.name == name {
			return s, true
		}
	}
	return strategy{}, false
}

const (
	valueLife = time.Hour
	namespace = "stampede"
	// patience is how long a caller waits beyond twice the time that a load takes.
	patience = time.Minute
	// tierTimeout is far above the default: that a few cores are busy with fifty processes is no reason to do without the tier.
	tierTimeout = 5 * time.Second
)

// openOnefill makes the process a cluster of its own.
func openOnefill(p *process) (get, func(), error) {
	tier, err := l2.Redis(p.redis, l2.Config{TierTimeout: tierTimeout})
	if err != nil {
		return nil, nil, err
	}
	mesh, err := onefill.New(onefill.Config{Namespace: namespace, Tier: tier})
	if err != nil {
		return nil, nil, err
	}
	done := func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = mesh.Close(ctx) // what could not be told in time is no matter: the run is over
	}
	group, err := onefill.NewGroup(mesh, "items", p.load, onefill.TTL(valueLife), onefill.LoadTimeout(p.takes+patience))
	if err != nil {
		done()
		return nil, nil, err
	}
	return group.Get, done, mesh.Ready(context.Background())
}

// recipe is a way of a caller that goes alone.
type recipe func(ctx context.Context, p *process, key string) (value, error)

func alone(r recipe) func(p *process) (get, func(), error) {
	return func(p *process) (get, func(), error) {
		return func(ctx context.Context, key string) (value, error) { return r(ctx, p, key) }, func() {}, p.redis.Ping(context.Background()).Err()
	}
}

const (
	lockWait   = 5 * time.Second
	lockExpiry = 30 * time.Second
	lockPause  = 100 * time.Millisecond
)

// lockPoll waits at most 5 s for a lock that expires after 30 s, asks every 100 ms, and then does without.
func lockPoll(ctx context.Context, p *process, key string) (value, error) {
	for patient := time.Now().Add(lockWait); time.Now().Before(patient); {
		if v, err := p.read(ctx, key); !errors.Is(err, redis.Nil) {
			return v, err
		}
		if locked, err := p.lock(ctx, key); err != nil {
			return value{}, err
		} else if locked {
			defer p.unlock(ctx, key)
			break
		}
		if err := pause(ctx, lockPause); err != nil {
			return value{}, err
		}
	}
	if v, err := p.read(ctx, key); !errors.Is(err, redis.Nil) {
		return v, err
	}
	return p.loadAndStore(ctx, key)
}

// lockSleep sleeps 100 ms where the lock is held, reads once more, and then does without.
func lockSleep(ctx context.Context, p *process, key string) (value, error) {
	if v, err := p.read(ctx, key); !errors.Is(err, redis.Nil) {
		return v, err
	}
	locked, err := p.lock(ctx, key)
	if err != nil {
		return value{}, err
	}
	if locked {
		defer p.unlock(ctx, key)
		return p.loadAndStore(ctx, key)
	}
	if err := pause(ctx, lockPause); err != nil {
		return value{}, err
	}
	if v, err := p.read(ctx, key); !errors.Is(err, redis.Nil) {
		return v, err
	}
	return p.loadAndStore(ctx, key)
}

// unlocked reads, and loads where there is nothing.
func unlocked(ctx context.Context, p *process, key string) (value, error) {
	if v, err := p.read(ctx, key); !errors.Is(err, redis.Nil) {
		return v, err
	}
	return p.loadAndStore(ctx, key)
}

// read returns redis.Nil where Redis does not have the key.
func (p *process) read(ctx context.Context, key string) (v value, err error) {
	b, err := p.redis.Get(ctx, key).Bytes()
	if err != nil {
		return v, err
	}
	return v, json.Unmarshal(b, &v)
}

func (p *process) loadAndStore(ctx context.Context, key string) (value, error) {
	v, err := p.load(ctx, key)
	if err != nil {
		return v, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return v, err
	}
	return v, p.redis.Set(ctx, key, b, valueLife).Err()
}

func (p *process) lock(ctx context.Context, key string) (bool, error) {
	return p.redis.SetNX(ctx, "lock:"+key, "locked", lockExpiry).Result()
}

func (p *process) unlock(ctx context.Context, key string) { _ = p.redis.Del(ctx, "lock:"+key).Err() } // else it expires

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
