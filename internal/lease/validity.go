// This file is the lease's own clock: until when its holder may rely on it without asking.

package lease

import "time"

// Validity says until when a lease may be relied on, judged by the holder alone. It counts from the moment at which the request was sent, so that it ends
// before the lease can end in the store, and loses 1 % and 2 ms more to clocks that run at different speeds (the margin of the Redlock description).
// The zero Validity has run out.
type Validity struct {
	sent time.Time // carries the monotonic reading and the wall clock's
	span time.Duration
}

// ValidFor returns the validity of a lease of length ttl that was asked for at sent, a reading of time.Now.
func ValidFor(sent time.Time, ttl time.Duration) Validity {
	return Validity{sent: sent, span: ttl - ttl/100 - 2*time.Millisecond}
}

// Left returns how long the lease may still be relied on at now, a reading of time.Now; zero or less when it may not. The clock that went further counts:
// the monotonic clock stands still while a machine sleeps, and the wall clock can be set back.
func (v Validity) Left(now time.Time) time.Duration {
	elapsed := now.Sub(v.sent)
	if wall := now.Round(0).Sub(v.sent.Round(0)); wall > elapsed {
		elapsed = wall
	}
	return v.span - elapsed
}

// Ends returns the moment at which the validity runs out.
func (v Validity) Ends() time.Time { return v.sent.Add(v.span) }
