package bench

// onefill with Redis behind it, as a contender: a mesh of one process, which is a cluster of its own.

import (
	"context"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
)

const onefillNamespace = "bench"

// onefillTierTimeout is more than a busy machine takes: a mesh that does without the tier would be something else to measure.
const onefillTierTimeout = 10 * time.Second

// openTierGroup opens a mesh with a tier in the Redis at addr, and a group whose values live longer than any benchmark.
func openTierGroup(b *testing.B, addr string, maxBytes int64, load load) *onefill.Group[[]byte] {
	b.Helper()
	tier, err := l2.Redis(openRedis(b, addr), l2.Config{TierTimeout: onefillTierTimeout})
	if err != nil {
		b.Fatal(err)
	}
	mesh, err := onefill.New(onefill.Config{Namespace: onefillNamespace, Tier: tier, MaxBytes: maxBytes})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { mesh.Close(context.Background()) })
	group, err := onefill.NewGroup(mesh, onefillServed, func(_ context.Context, key string) ([]byte, error) { return load(key) }, onefill.TTL(time.Hour))
	if err != nil {
		b.Fatal(err)
	}
	if err := mesh.Ready(b.Context()); err != nil {
		b.Fatal(err)
	}
	return group
}

// openOnefillTier loads what Redis does not have.
func openOnefillTier(b *testing.B, addr string) read {
	return onefillRead(openTierGroup(b, addr, onefillCapacity, func(key string) ([]byte, error) { return makeValue(key, valueSize), nil }))
}

// fillTier puts the values into Redis that BenchmarkTierHit reads.
func fillTier(b *testing.B, addr string) {
	b.Helper()
	warm(b, userKeys(tierKeys), openOnefillTier(b, addr))
}

// openOnefillTierHits loads nothing and keeps next to nothing.
func openOnefillTierHits(b *testing.B, addr string) ([]string, read) {
	group := openTierGroup(b, addr, tierMemory, func(string) ([]byte, error) { return nil, errLoadedHere })
	b.Cleanup(func() {
		if hits := group.Stats().Hits; hits != 0 {
			b.Errorf("%d reads did not go to Redis", hits)
		}
	})
	return userKeys(tierKeys), onefillRead(group)
}
