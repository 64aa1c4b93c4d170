package bench

// BenchmarkRank: how long it takes to find a key's owner, and how evenly keys spread over the members.

import (
	"fmt"
	"testing"
)

const rankKeys = 1_000_000

// BenchmarkRank looks up owners of sequential keys, which hash functions for rings spread worst. max/mean is the share of the fullest member of a million
// keys over the fair share: 1 is even.
func BenchmarkRank(b *testing.B) {
	keys := userKeys(rankKeys)
	for _, members := range []int{10, 100, 1000} {
		urls := make([]string, members)
		for i := range urls {
			urls[i] = fmt.Sprintf("http://10.0.%d.%d:7946", i/250, i%250+1)
		}
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			b.Run("onefill", func(b *testing.B) { measureRank(b, keys, members, rankOnefill(b, urls)) })
			b.Run("groupcache", func(b *testing.B) { measureRank(b, keys, members, rankGroupcache(urls)) })
		})
	}
}

func measureRank(b *testing.B, keys []string, members int, owner func(key string) string) {
	b.ReportAllocs()
	next := 0
	for b.Loop() {
		owner(keys[next%rankKeys])
		next++
	}

	owned := make(map[string]int, members)
	fullest := 0
	for _, key := range keys {
		member := owner(key)
		owned[member]++
		fullest = max(fullest, owned[member])
	}
	if len(owned) > members || owned[""] > 0 {
		b.Fatalf("%d members own keys, of %d; %d keys have no owner", len(owned), members, owned[""])
	}
	b.ReportMetric(float64(fullest)*float64(members)/rankKeys, "max/mean")
}
