// What is remembered of keys whose loads fail, and for how long. That pauses are kept to is tested with the freshness of values.

package onefill

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Contract: F5
func TestFailuresOfEverNewKeysNeitherPileUpNorSlowDown(t *testing.T) {
	const keys = 3 * maxRetries
	began := time.Now() // outside the bubble: what it costs in earnest
	synctest.Test(t, func(t *testing.T) {
		var r retries
		for i := range keys {
			r.failed(fmt.Sprint(i), maxRetryAfter)
		}
		if n := len(r.m) + len(r.old); n != maxRetries {
			t.Errorf("%d keys are remembered, want %d", n, maxRetries)
		}
		if !r.waiting("0") || r.waiting("unknown") {
			t.Error("a key that has failed does not pause, or one that has not does")
		}
		for i := range 2 { // it takes new failures to forget the old ones
			time.Sleep(8 * maxRetryAfter)
			r.failed(fmt.Sprint("late ", i), maxRetryAfter)
		}
		if n := len(r.m) + len(r.old); n != 2 {
			t.Errorf("%d keys are remembered long after all but two have failed", n)
		}
	})
	if took := time.Since(began); took > 5*time.Second { // some 30 ms; looking through all that is remembered each time would take far longer
		t.Errorf("%d failures took %v", keys, took)
	}
}
