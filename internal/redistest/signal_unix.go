//go:build unix

package redistest

import (
	"os"
	"syscall"
)

// The signals that stop a process in its tracks and let it go on.
var (
	stop   os.Signal = syscall.SIGSTOP
	resume os.Signal = syscall.SIGCONT
)
