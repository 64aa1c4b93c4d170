package bench

// The keys and values that every contender gets alike.

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A load makes the value of a key. Every contender calls it on a miss and keeps what it returns.
type load func(key string) ([]byte, error)

// A read returns the length of key's value, loading it first where it is missing. Only the length, because contenders differ in what they hand out:
// a shared slice, a view, a copy. Each says in its file which one.
type read func(key string) (int, error)

// makeValue returns size bytes of their own that begin with the key.
func makeValue(key string, size int) []byte {
	value := make([]byte, size)
	copy(value, key)
	return value
}

// userKey returns key number i, 21 bytes long.
func userKey(i int) string { return fmt.Sprintf("user:%016d", i) }

// userKeys returns n keys.
func userKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = userKey(i)
	}
	return keys
}

// shuffled returns the keys in an order that is random but the same in every run. They are copies that lie in memory one after another: callers have
// just built the key that they ask for, so its own bytes are at hand, and a cache that compares it with the key it stored has two places to look at.
func shuffled(keys []string) []string {
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(keys))
	var all strings.Builder
	for _, i := range order {
		all.WriteString(keys[i])
	}
	rest := all.String()
	copies := make([]string, len(keys))
	for at, i := range order {
		copies[at], rest = rest[:len(keys[i])], rest[len(keys[i]):]
	}
	return copies
}
