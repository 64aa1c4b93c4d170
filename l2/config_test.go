package l2_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/l2"
)

// Contract: L19, O3
func TestRedisNamesWhatIsWrongWithItsArguments(t *testing.T) {
	secret := make([]byte, 32)
	good := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = good.Close() }()
	cluster := func(change func(*redis.ClusterOptions)) redis.UniversalClient {
		options := &redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}}
		change(options)
		c := redis.NewClusterClient(options)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	failover := redis.NewFailoverClusterClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}, ReplicaOnly: true})
	defer func() { _ = failover.Close() }()
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer func() { _ = ring.Close() }()
	for _, c := range []struct {
		client redis.UniversalClient
		cfg    l2.Config
		want   string // "" for none
	}{
		{good, l2.Config{}, ""},
		{good, l2.Config{ClaimTTL: 100 * time.Millisecond, TierTimeout: 1, CompressAbove: -1, Keys: []l2.Key{{ID: "a", Secret: secret}}}, ""},
		{cluster(func(*redis.ClusterOptions) {}), l2.Config{}, ""},
		{nil, l2.Config{}, "client is nil"},
		{(*redis.Client)(nil), l2.Config{}, "client is nil"},
		{(*redis.ClusterClient)(nil), l2.Config{}, "client is nil"},
		{cluster(func(o *redis.ClusterOptions) { o.ReadOnly = true }), l2.Config{}, "replicas"},
		{cluster(func(o *redis.ClusterOptions) { o.RouteByLatency = true }), l2.Config{}, "replicas"},
		{cluster(func(o *redis.ClusterOptions) { o.RouteRandomly = true }), l2.Config{}, "replicas"},
		{failover, l2.Config{}, "replicas"},
		{ring, l2.Config{}, "Ring"},
		{good, l2.Config{ClaimTTL: 99 * time.Millisecond}, "Config.ClaimTTL is 99ms"},
		{good, l2.Config{ClaimTTL: -1}, "Config.ClaimTTL"},
		{good, l2.Config{ClaimTTL: time.Hour}, "Config.ClaimTTL"},
		{good, l2.Config{TierTimeout: -1}, "Config.TierTimeout"},
		{good, l2.Config{TierTimeout: time.Hour}, "Config.TierTimeout"},
		{good, l2.Config{Keys: []l2.Key{{ID: "a", Secret: secret[:31]}}}, "Config.Keys[0].Secret has 31 bytes"},
		{good, l2.Config{Keys: []l2.Key{{ID: "a", Secret: secret}, {ID: "b"}}}, "Config.Keys[1].Secret has 0 bytes"},
		{good, l2.Config{Keys: []l2.Key{{Secret: secret}}}, "Config.Keys[0].ID"},
		{good, l2.Config{Keys: []l2.Key{{ID: "a", Secret: secret}, {ID: "a", Secret: secret}}}, "Config.Keys[1].ID"},
	} {
		_, err := l2.Redis(c.client, c.cfg)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.cfg, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "l2: ")):
			t.Errorf("%+v: %v, want an error about %q", c.cfg, err, c.want)
		}
	}
}
