// This file holds every setting, its default and its range.

package lock

import (
	"fmt"
	"log/slog"
	"strings"
	"time"
)

const (
	defaultPrefix  = "lock"
	defaultTTL     = 10 * time.Second
	defaultTimeout = 500 * time.Millisecond

	minTTL   = 100 * time.Millisecond
	maxTTL   = 24 * time.Hour
	maxName  = 1024    // bytes
	maxFence = 1 << 53 // Redis's scripts count in floating point: above this they cannot add one
)

// Config is what a Client is made with. The zero Config is ready to use.
type Config struct {
	// Prefix begins every key and channel in Redis. Clients with the same prefix share their locks. Default "lock"; braces are refused, since they would
	// move keys between the slots of a Cluster.
	Prefix string
	// TTL is how long a lease outlives a holder that died, for locks without a TTL of their own. Default 10 s; from 100 ms to 24 h.
	TTL time.Duration
	// Timeout bounds each question to Redis, whatever the Redis client's own options: after it the answer is ErrUnavailable. Default 500 ms; negative is
	// refused. It does not bound how long Lock waits: its context does.
	Timeout time.Duration
	// Logger gets the few things that nobody is there to be told as an error, such as an eviction policy that can drop a held lock. Default slog.Default().
	Logger *slog.Logger
}

// withDefaults returns c with its zero fields filled in, or an error that names the field out of range.
func (c Config) withDefaults() (Config, error) {
	if c.Prefix == "" {
		c.Prefix = defaultPrefix
	}
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if strings.ContainsAny(c.Prefix, "{}") || len(c.Prefix) > maxName {
		return c, fmt.Errorf("%w: Config.Prefix %.40q: want at most %d bytes without braces", ErrInvalid, c.Prefix, maxName)
	}
	if c.Timeout < 0 {
		return c, fmt.Errorf("%w: Config.Timeout %v: want more than 0", ErrInvalid, c.Timeout)
	}
	if err := checkTTL("Config.TTL", c.TTL); err != nil {
		return c, err
	}
	return c, nil
}

func checkTTL(what string, ttl time.Duration) error {
	if ttl < minTTL || ttl > maxTTL {
		return fmt.Errorf("%w: %s %v: want %v to %v", ErrInvalid, what, ttl, minTTL, maxTTL)
	}
	return nil
}

// Option tunes one lock. A value out of range shows as ErrInvalid at the lock's first use.
type Option func(*settings)

type settings struct {
	ttl     time.Duration
	floor   uint64
	reentry bool
	err     error // the first thing out of range
}

// TTL sets how long a lease outlives a holder that died. Default Config.TTL; from 100 ms to 24 h. Leases are renewed every third of it until released, so it
// need not cover the work.
func TTL(ttl time.Duration) Option {
	return func(s *settings) {
		s.ttl = ttl
		s.refuse(checkTTL("TTL", ttl))
	}
}

// WithReentry lets a lease be taken again within its own Context, where it is otherwise ErrDeadlock: the inner lease is counted, and only the last release
// frees the lock. A read lease is not turned into a write lease this way; that is Lease.Upgrade.
func WithReentry() Option {
	return func(s *settings) { s.reentry = true }
}

// Floor makes every fence greater than the given one: the highest that the guarded resource has recorded, say, after Redis came back empty on a machine whose
// clock is behind. Default 0; below 2^53.
func Floor(fence uint64) Option {
	return func(s *settings) {
		s.floor = fence
		if fence >= maxFence {
			s.refuse(fmt.Errorf("%w: Floor %d: want less than 2^53", ErrInvalid, fence))
		}
	}
}

// refuse keeps the first error that is one.
func (s *settings) refuse(err error) {
	if s.err == nil {
		s.err = err
	}
}
