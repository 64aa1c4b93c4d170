// This file holds every state that an error of this package can stand for.

package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/onefill/onefill/internal/lease"
)

// The errors of this package, to be found with errors.Is.
var (
	// ErrNotAcquired says that someone else holds what was asked for: from a Try method at once, from a waiting one together with its context's error.
	ErrNotAcquired = errors.New("lock: not acquired: held by someone else")
	// ErrLost says that the lease ended before its release: it was not renewed in time, or the store no longer knows it. It is also the cause with which
	// the lease's Context ends.
	ErrLost = errors.New("lock: lease lost")
	// ErrNotHeld says that there is nothing to act on: the lease was released before, or the token adopted belongs to no living lease.
	ErrNotHeld = errors.New("lock: lease not held")
	// ErrConflict says that another reader of the same RWMutex is being upgraded. The two would wait for each other; this one is to release its lease.
	ErrConflict = errors.New("lock: another reader is being upgraded")
	// ErrDeadlock says that the context belongs to a lease of the same name, so that the wait would be for oneself. See WithReentry.
	ErrDeadlock = errors.New("lock: already held in this context")
	// ErrThrottled says that the bucket is empty, or fills too late for the context's deadline (then together with context.DeadlineExceeded).
	ErrThrottled = errors.New("lock: throttled")
	// ErrClosed says that the Client has been closed.
	ErrClosed = errors.New("lock: client closed")
	// ErrUnavailable says that the store could not be asked or refused to answer; it wraps what the store's client said. Nothing is known about the lock.
	ErrUnavailable = errors.New("lock: store unavailable")
	// ErrInvalid says that a name, an option, a token or an argument is out of its range; the text says which.
	ErrInvalid = errors.New("lock: invalid")
)

// storeError turns an error of the store into one of this package's. Of a caller whose ctx has ended it is that context's own.
func storeError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("lock: %w", ctx.Err())
	case errors.Is(err, lease.ErrStopped):
		return ErrClosed
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // of the bound on the call, not the caller's
		return fmt.Errorf("%w: %v", ErrUnavailable, err)
	default:
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
}

// stillHeld is the error of a wait that ctx ended while someone else held the lease.
func stillHeld(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrNotAcquired, ctx.Err())
}
