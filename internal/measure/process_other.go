//go:build !linux

package measure

import "syscall"

// dieWithParent leaves it to Serve where the kernel offers nothing: standard input ends with the parent.
func dieWithParent() *syscall.SysProcAttr { return nil }
