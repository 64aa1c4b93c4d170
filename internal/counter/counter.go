// Package counter counts what happens so often that a shared number would slow it down: hits. What is counted, and who reads it, is not known here.
package counter

import (
	"sync/atomic"
	"unsafe"
)

// stripes is a power of two: enough that a few cores seldom meet on one, few enough (2 KiB a counter) to have a counter for each group.
const (
	stripes    = 32
	stripeBits = 5
)

// Counter is a number spread over cache lines, so that goroutines on different cores seldom write to the same one. The zero value is 0 and ready for use.
// Its methods are safe for concurrent use. It must not be copied.
type Counter struct {
	stripes [stripes]stripe
}

type stripe struct {
	n atomic.Uint64
	_ [56]byte
}

// Add adds n. Its stripe follows from the address of the caller's stack, which no two running goroutines share: knowing the processor would be better,
// but the runtime does not tell.
func (c *Counter) Add(n uint64) {
	var here byte
	address := uint64(uintptr(unsafe.Pointer(&here))) >> 11 // the smallest stack is 2 KiB
	c.stripes[address*0x9e3779b97f4a7c15>>(64-stripeBits)].n.Add(n)
}

// Load returns the sum. It sees every Add that returned before it was called; of those that run meanwhile, any.
func (c *Counter) Load() (sum uint64) {
	for i := range c.stripes {
		sum += c.stripes[i].n.Load()
	}
	return sum
}
