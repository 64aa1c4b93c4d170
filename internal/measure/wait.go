// How long callers waited.

package measure

import (
	"math"
	"slices"
	"time"
)

// Percentile returns the wait that p percent of waits do not exceed, by nearest rank; zero where there are none. It leaves waits as they are.
func Percentile(waits []time.Duration, p float64) time.Duration {
	if len(waits) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(waits))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Milliseconds returns d as reports give it.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
