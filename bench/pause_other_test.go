//go:build !linux

package bench

import "time"

// pauseUntil returns at t or, depending on the system, up to some milliseconds later: compare no figures with a delay between systems.
func pauseUntil(t time.Time) { time.Sleep(time.Until(t)) }
