package redistest

import "syscall"

// dieWithParent makes the kernel end a server whose test was killed.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
