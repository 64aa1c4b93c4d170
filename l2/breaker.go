// The breaker: what spares everyone the wait for a tier that does not answer. It knows nothing of Redis.

package l2

import (
	"errors"
	"sync"
	"time"
)

// errDown is returned, without a wait, while the tier is believed to be down.
var errDown = errors.New("l2: the tier is down")

// After a failure the first probe goes out after probeMin; the pause doubles with each probe that fails, up to probeMax.
const (
	probeMin = 100 * time.Millisecond
	probeMax = time.Second
)

// breaker lets every call through while the tier answers. After a failure it lets one call at a time through, as a probe; the first success of any call
// closes it again. The zero breaker is closed. It is safe for concurrent use.
type breaker struct {
	mu      sync.Mutex // guards what follows
	down    bool
	probing bool
	pause   time.Duration
	next    time.Time // of the next probe
	healthy time.Time // of the last success
}

// admit returns errDown, or whether the call is a probe. Who was admitted calls settle.
func (b *breaker) admit(now time.Time) (probe bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.down {
		return false, nil
	}
	if b.probing || now.Before(b.next) {
		return false, errDown
	}
	b.probing = true
	return true, nil
}

// verdict is what a call says about the tier.
type verdict uint8

const (
	silent   verdict = iota // nothing: the caller left
	answered                // it answers
	failed                  // it does not
)

// settle notes how a call went that began at began. It returns whether the tier has gone down or come back with it. A failure of a call that began before the
// last success says nothing new.
func (b *breaker) settle(probe bool, began time.Time, v verdict) (changed bool) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if probe {
		b.probing = false
	}
	switch {
	case v == answered:
		changed, b.down, b.healthy = b.down, false, now
	case v == failed && !b.down && !began.Before(b.healthy):
		changed, b.down, b.pause = true, true, probeMin
		b.next = now.Add(b.pause)
	case v == failed && probe:
		b.pause = min(2*b.pause, probeMax)
		b.next = now.Add(b.pause)
	}
	return changed
}

// due reports whether the tier is down and could be probed.
func (b *breaker) due(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.down && !b.probing && !now.Before(b.next)
}

// state is what onefill.Tier.State says.
func (b *breaker) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case !b.down:
		return "up"
	case b.probing:
		return "probing"
	}
	return "down"
}
