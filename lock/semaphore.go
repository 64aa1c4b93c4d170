// This file is the Semaphore: at most n holders at a time, anywhere.

package lock

import (
	"context"
	"fmt"
)

// Semaphore is a lock with up to n holders at a time among all processes that use the same Redis, Prefix and name. Each asks by its own n: where they
// differ, each gets a permit only while fewer than its n are out.
type Semaphore struct {
	lock
	n int
}

// Semaphore returns the semaphore of that name (1 to 1024 bytes) with n permits, 1 to 1,000,000. Making it costs no trip; a wrong name, n or option is
// ErrInvalid at its first use.
func (c *Client) Semaphore(name string, n int, options ...Option) *Semaphore {
	s := &Semaphore{c.lock(kindSemaphore, name, options), n}
	s.refuse(checkCount(n))
	return s
}

const maxCount = 1_000_000

func checkCount(n int) error {
	if n < 1 || n > maxCount {
		return fmt.Errorf("%w: n %d: want 1 to %d", ErrInvalid, n, maxCount)
	}
	return nil
}

// Acquire waits for a permit as long as ctx allows; releasing the lease gives it back, once. Errors: as Mutex.Lock. Taking a second permit within the
// context of a first is ErrDeadlock, since n callers who do so would wait for one another; with WithReentry it is the same permit, counted.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	return s.acquire(ctx, opPermit, s.n)
}

// TryAcquire takes a permit if there is one, and otherwise returns ErrNotAcquired at once. Other errors: as Acquire.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Lease, error) { return s.try(ctx, opPermit, s.n) }

// Do runs fn with a permit, as Mutex.Do does under a mutex.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	l, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}
