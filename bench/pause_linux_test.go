package bench

import (
	"syscall"
	"time"
)

// slack is how late the kernel may wake a thread that sleeps.
const slack = 100 * time.Microsecond

// pauseUntil returns at t, within microseconds. A timer of Go's would be up to a millisecond late in a process that has nothing else to do.
func pauseUntil(t time.Time) {
	for left := time.Until(t) - slack; left > 0; left = time.Until(t) - slack {
		sleep := syscall.NsecToTimespec(int64(left))
		_ = syscall.Nanosleep(&sleep, nil) // a signal ends it early
	}
	for time.Now().Before(t) {
	}
}
