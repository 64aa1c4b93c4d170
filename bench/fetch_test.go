package bench

// BenchmarkPeerFetch: what a read of a value that another process holds costs, for one caller and for sixteen at once.

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
)

// A peer is a contender that asks another process. connect starts that process, with one core, and returns keys that it owns and the way to read
// them. It must ask anew for each read, and fail with errLoadedHere where it would load by itself.
type peer struct {
	name    string
	connect func(b *testing.B) (keys []string, get read)
}

var errLoadedHere = errors.New("the caller loaded a key that the second process owns")

const peerKeys = 2048 // a multiple of every number of callers

// BenchmarkPeerFetch reads keys whose values of 128 bytes lie in the memory of a second process on the same machine. The caller keeps no copies, so
// every read is a question and an answer over loopback. Both processes have one core; ns/op is per value, however many callers share the time.
func BenchmarkPeerFetch(b *testing.B) {
	for _, peer := range []peer{
		{"onefill", connectOnefill},
		{"onefill-secret", connectOnefillSecret},
		{"groupcache", connectGroupcache},
		{"nethttp", connectNetHTTP},
	} {
		b.Run(peer.name, func(b *testing.B) {
			keys, get := peer.connect(b)
			warm(b, keys, get)
			keys = shuffled(keys)
			for _, callers := range []int{1, 16} {
				b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { measureFetch(b, callers, keys, get) })
			}
		})
	}
}

func measureFetch(b *testing.B, callers int, keys []string, get read) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var started atomic.Int64
	b.SetParallelism(callers) // times GOMAXPROCS, which is 1
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		next := int(started.Add(1)) // each caller has keys of its own, so that none joins another's fetch
		for pb.Next() {
			next += callers
			if size, err := get(keys[next%len(keys)]); err != nil || size != valueSize {
				b.Errorf("got %d bytes, %v", size, err)
				return
			}
		}
	})
}
