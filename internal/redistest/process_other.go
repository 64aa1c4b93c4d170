//go:build !linux

package redistest

import "syscall"

// dieWithParent does nothing where the kernel offers nothing: a server whose test was killed stays.
func dieWithParent() *syscall.SysProcAttr { return nil }
