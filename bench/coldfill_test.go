package bench

// BenchmarkColdFill: what it costs to fill a key that nobody has, when many processes share a Redis and none of them must load it twice.

import (
	"fmt"
	"testing"

	"github.com/onefill/onefill/internal/redistest"
)

// A filler is a contender that fills keys through a Redis. open returns how to read a key, which loads it by makeValue where Redis does not have it.
type filler struct {
	name string
	open func(b *testing.B, addr string) read
}

var fillers = []filler{
	{"onefill", openOnefillTier},
	{"lock-per-key", openLockPerKey},
	{"rueidisaside", openRueidisAside},
}

// countedFills is how many fills the pass that counts round trips makes.
const countedFills = 101

// BenchmarkColdFill reads one key after another that nobody has read before, through a Redis on the same machine, by a loader that takes no time.
// roundtrips/op is counted by a proxy in a pass of its own, which is not timed.
func BenchmarkColdFill(b *testing.B) {
	for _, f := range fillers {
		b.Run(f.name, func(b *testing.B) {
			for _, delay := range delays {
				b.Run("delay="+delay.name, func(b *testing.B) {
					server := redistest.Start(b)
					addr := server.Addr()
					trips := countTrips(b, f, addr)
					if delay.each > 0 {
						addr = startProxy(b, addr, delay.each).addr()
					}
					fill := f.fills(b, addr, "timed")
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if err := fill(i); err != nil {
							b.Fatal(err)
						}
					}
					b.ReportMetric(trips, "roundtrips/op")
				})
			}
		})
	}
}

// countTrips returns how many round trips a fill of this contender takes.
func countTrips(b *testing.B, f filler, addr string) float64 {
	b.Helper()
	p := startProxy(b, addr, 0)
	return p.tripsOf(b, countedFills, f.fills(b, p.addr(), "counted"))
}

// fills opens the contender, warms up its connections, and returns how to fill cold key number i.
func (f filler) fills(b *testing.B, addr, pass string) func(i int) error {
	b.Helper()
	get := f.open(b, addr)
	fill := func(i int) error {
		size, err := get(pass + userKey(i))
		if err == nil && size != valueSize {
			err = fmt.Errorf("got %d bytes", size)
		}
		return err
	}
	for i := range 20 {
		if err := fill(-1 - i); err != nil {
			b.Fatal(err)
		}
	}
	return fill
}
