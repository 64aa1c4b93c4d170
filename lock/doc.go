// Package lock holds what processes coordinate with: a Mutex, an RWMutex, a Semaphore, a Throttle, Once and an Average, in Redis or, with Local, inside one
// process. It stands alone: no mesh, no cache.
//
//	locks, err := lock.New(rdb, lock.Config{})
//	defer locks.Close()
//
//	err = locks.Mutex("nightly-report").Do(ctx, func(ctx context.Context, lease *lock.Lease) error {
//		return writeReport(ctx, lease.Fence())
//	})
//
// # What to expect
//
// Locks fail closed: when Redis cannot be asked the answer is ErrUnavailable, never "held by someone else" and never a lock. Everything that waits takes a
// context and waits as long as that allows. Waiters are woken by a message when a lease is released, with a timer beside it.
//
// A Lease renews itself until it is released. When it is lost (the process slept, Redis lost it), its Context ends with the cause ErrLost, by the holder's
// own clock and before anyone else can have it, as long as clocks run at about the same speed. What a process does between losing the lease and noticing it no
// lock can prevent: pass the Fence to the resource, and let it refuse a lower one than it has seen.
//
// Not promised: mutual exclusion that survives the loss of acknowledged writes in Redis (a failover), order between processes (inside a process it is first
// come, first served), and quorums over several servers.
//
// Everything here is safe for concurrent use.
package lock
