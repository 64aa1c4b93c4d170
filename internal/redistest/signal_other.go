//go:build !unix

package redistest

import "os"

// Where processes cannot be stopped and resumed, Pause fails the test.
var (
	stop   os.Signal = os.Interrupt
	resume os.Signal = os.Interrupt
)
