// This file is the Mutex: one holder at a time, anywhere.

package lock

import "context"

// Mutex is a lock with one holder at a time among all processes that use the same Redis, Prefix and name. Waiters in one process are served in the order of
// their arrival; between processes no order is promised.
type Mutex struct{ lock }

// Mutex returns the mutex of that name (1 to 1024 bytes). Making it costs no trip; a wrong name or option is ErrInvalid at its first use.
func (c *Client) Mutex(name string, options ...Option) *Mutex {
	return &Mutex{c.lock(kindMutex, name, options)}
}

// Lock waits for the mutex as long as ctx allows. Errors: ErrNotAcquired together with ctx's own error when someone else held it until ctx ended, ctx's own
// alone when that is not known, ErrDeadlock within a lease of the same name, ErrUnavailable at once when the store cannot be asked, ErrClosed, ErrInvalid.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.acquire(ctx, opMutex, 0) }

// TryLock takes the mutex if it is free, and otherwise returns ErrNotAcquired at once. ctx bounds the question. Other errors: as Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.try(ctx, opMutex, 0) }

// Do runs fn under the mutex, waiting for it as Lock does. fn's context ends with ctx, and with the cause ErrLost when the lease is lost. Do releases the
// lease whatever fn does, a panic included, and returns fn's error joined with Lock's or Release's: a nil says that the lease was held throughout.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	l, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	return l.do(ctx, fn)
}
