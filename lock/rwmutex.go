// This file is the RWMutex: many readers or one writer. Upgrade and Downgrade are the Lease's.

package lock

import "context"

// RWMutex is a lock with any number of readers or one writer among all processes that use the same Redis, Prefix and name. A writer that waits keeps new
// readers out, so that it is not starved; it does so by a lease of its own, so that a waiting writer that dies keeps them out no longer than its TTL.
type RWMutex struct{ lock }

// RWMutex returns the mutex of that name (1 to 1024 bytes). Making it costs no trip; a wrong name or option is ErrInvalid at its first use.
func (c *Client) RWMutex(name string, options ...Option) *RWMutex {
	return &RWMutex{c.lock(kindRW, name, options)}
}

// Lock waits for the write lease as long as ctx allows. Errors: as Mutex.Lock; within a read lease of the same name always ErrDeadlock, also with
// WithReentry: use Lease.Upgrade.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, opWrite, 0) }

// TryLock takes the write lease if there is neither reader nor writer, and otherwise returns ErrNotAcquired at once. Other errors: as Lock.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.try(ctx, opWrite, 0) }

// RLock waits for a read lease as long as ctx allows: until there is no writer, and none waits. Errors: as Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, opRead, 0) }

// TryRLock takes a read lease if there is no writer and none waits, and otherwise returns ErrNotAcquired at once. Other errors: as Mutex.Lock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) { return m.try(ctx, opRead, 0) }
