// The settings of the tier, their defaults and limits, and which Redis clients it refuses.

package l2

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// The defaults of Config.
const (
	DefaultClaimTTL      = 3 * time.Second
	DefaultTierTimeout   = 250 * time.Millisecond
	DefaultCompressAbove = 1 << 10
)

// The limits of Config.
const (
	minClaimTTL = 100 * time.Millisecond
	maxClaimTTL = 10 * time.Minute // fences are kept that long
	maxTimeout  = time.Minute
	secretBytes = 32
	maxKeyID    = 255
)

// Config tunes a tier in Redis. Its zero value is ready.
type Config struct {
	// ClaimTTL is the lease of a claim, renewed every third of it: a process that dies while it loads is replaced that long after. Zero means 3 s; at least
	// 100 ms, at most 10 minutes. Processes with different values get along.
	ClaimTTL time.Duration
	// TierTimeout bounds what a tier that does not answer costs a flight, whatever the options of the Redis client. Zero means 250 ms; negative, or more than
	// a minute, is an error.
	TierTimeout time.Duration
	// CompressAbove is the size in bytes from which values are compressed with zstd, where that makes them smaller. Zero means 1024; negative means never.
	// Processes that compress and processes that do not read each other's values.
	CompressAbove int
	// Keys encrypt values with AES-256-GCM. The first encrypts, all decrypt: to rotate, add the new key at the end everywhere, then move it to the front
	// everywhere, then take the old one away. None, the default, means no encryption. With keys, plain values are misses, see MigratePlain.
	Keys []Key
	// MigratePlain accepts plain values beside encrypted ones, for the time of a rolling deploy that introduces Keys. It has no effect without Keys.
	MigratePlain bool
	// Logger gets a line for each kind of background failure, at most once a second. Nil means slog.Default().
	Logger *slog.Logger
}

// Key is a secret for encryption and the name under which values refer to it.
type Key struct {
	ID     string // not empty, at most 255 bytes, unique among Config.Keys; it is readable in Redis
	Secret []byte // 32 bytes
}

// check fills in the defaults and returns an error that names the field that is wrong.
func (c *Config) check() error {
	if c.ClaimTTL == 0 {
		c.ClaimTTL = DefaultClaimTTL
	}
	if c.TierTimeout == 0 {
		c.TierTimeout = DefaultTierTimeout
	}
	if c.CompressAbove == 0 {
		c.CompressAbove = DefaultCompressAbove
	}
	switch {
	case c.ClaimTTL < minClaimTTL || c.ClaimTTL > maxClaimTTL:
		return fmt.Errorf("l2: Redis: Config.ClaimTTL is %v: want %v to %v, or 0 for %v", c.ClaimTTL, minClaimTTL, maxClaimTTL, DefaultClaimTTL)
	case c.TierTimeout < 0 || c.TierTimeout > maxTimeout:
		return fmt.Errorf("l2: Redis: Config.TierTimeout is %v: want above 0 and at most %v, or 0 for %v", c.TierTimeout, maxTimeout, DefaultTierTimeout)
	}
	seen := make(map[string]bool)
	for i, k := range c.Keys {
		switch {
		case k.ID == "" || len(k.ID) > maxKeyID:
			return fmt.Errorf("l2: Redis: Config.Keys[%d].ID has %d bytes: want 1 to %d", i, len(k.ID), maxKeyID)
		case seen[k.ID]:
			return fmt.Errorf("l2: Redis: Config.Keys[%d].ID is %q: another key has that ID", i, k.ID)
		case len(k.Secret) != secretBytes:
			return fmt.Errorf("l2: Redis: Config.Keys[%d].Secret has %d bytes: want %d", i, len(k.Secret), secretBytes)
		}
		seen[k.ID] = true
	}
	return nil
}

var (
	errNilClient  = errors.New("l2: Redis: client is nil")
	errRing       = errors.New("l2: Redis: client is a Ring: it moves keys to another server when one is down, and its messages reach one server only")
	errReplicas   = errors.New("l2: Redis: client reads from replicas (ReadOnly, RouteByLatency, RouteRandomly or ReplicaOnly): a replica may not know a claim or an invalidation yet")
	errOtherSpace = errors.New("l2: one tier serves one namespace")
	errClosed     = errors.New("l2: closed")
)

// checkClient refuses the clients that cannot carry a tier. A plain failover client with ReplicaOnly cannot be told from others here: its first write
// fails, which is logged, and the tier is down.
func checkClient(client redis.UniversalClient) error {
	switch c := client.(type) {
	case nil:
		return errNilClient
	case *redis.Client:
		if c == nil {
			return errNilClient
		}
	case *redis.ClusterClient:
		if c == nil {
			return errNilClient
		}
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return errReplicas
		}
	case *redis.Ring:
		return errRing
	}
	return nil
}
