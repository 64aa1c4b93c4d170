package measure

import "syscall"

// dieWithParent makes the kernel end a process whose parent died.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
