package bench

// BenchmarkGetMulti: what a page that needs a hundred values of another process costs.

import (
	"runtime"
	"testing"
)

const multiKeys = 100

// BenchmarkGetMulti reads 100 keys at a time out of the 2,048 that a second process holds, as in BenchmarkPeerFetch; ns/op is per 100 keys.
func BenchmarkGetMulti(b *testing.B) {
	b.Run("onefill", func(b *testing.B) {
		b.Run("keys=100", func(b *testing.B) {
			keys, getMulti := connectOnefillMulti(b)
			measureMulti(b, keys, getMulti)
		})
	})
	b.Run("groupcache", func(b *testing.B) {
		b.Run("keys=100", func(b *testing.B) {
			// groupcache has no call for many keys: its users call Get for one after another.
			keys, get := connectGroupcache(b)
			measureMulti(b, keys, func(keys []string) (values int, err error) {
				for _, key := range keys {
					if _, err := get(key); err != nil {
						return values, err
					}
					values++
				}
				return values, nil
			})
		})
	})
}

func measureMulti(b *testing.B, keys []string, getMulti func(keys []string) (values int, err error)) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	keys = shuffled(keys)
	for at := 0; at+multiKeys <= len(keys); at += multiKeys { // the owner loads what will be asked
		if _, err := getMulti(keys[at : at+multiKeys]); err != nil {
			b.Fatalf("filling: %v", err)
		}
	}
	b.ReportAllocs()
	at := 0
	for b.Loop() {
		if at+multiKeys > len(keys) {
			at = 0
		}
		if values, err := getMulti(keys[at : at+multiKeys]); err != nil || values != multiKeys {
			b.Fatalf("got %d values, %v", values, err)
		}
		at += multiKeys
	}
}
