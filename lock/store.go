// This file says what a place for leases must be able to do. Redis does it in scripts (redis.go), Local under a mutex (local.go).

package lock

import (
	"context"
	"time"
)

// op is what a lease is asked for.
type op int

const (
	opMutex   op = iota // alone
	opOnce              // alone, unless it has been done
	opWrite             // alone among readers and writers
	opRead              // together with other readers
	opPermit            // one of n
	opUpgrade           // a reader becomes the writer
)

// exclusive reports whether the op's lease is held by one at a time.
func (o op) exclusive() bool { return o != opRead && o != opPermit }

// ask is a request for a lease. It may be sent again with the same token: an answer that was lost is then given again.
type ask struct {
	op    op
	room  room
	token string
	ttl   time.Duration
	floor uint64
	n     int  // of a permit: how many there are
	waits bool // wake me, and where the op has an intent, note mine
}

// state is what came of an ask.
type state int

const (
	stateHeld     state = iota // someone else holds it
	stateGranted               // yours, with a fence
	stateDone                  // of a Once: done within its window
	stateConflict              // of an upgrade: another one waits
	stateLost                  // of an upgrade: the read lease is gone
)

type answer struct {
	state state
	fence uint64        // when granted
	left  time.Duration // when held: what is known to remain of the lease in the way; zero or less when nothing is
}

// holding is a lease as its store knows it.
type holding struct {
	room  room
	token string
	ttl   time.Duration
}

// store is where leases live. Its errors are its own; callers turn them into this package's with storeError. Every method asks once and does not wait for a
// lease. A boolean result is false when the store does not know the lease.
type store interface {
	take(ctx context.Context, a ask) (answer, error)
	renew(ctx context.Context, bound time.Duration, all []holding) ([]bool, error)
	leave(ctx context.Context, h holding) (bool, error)
	withdraw(ctx context.Context, h holding) error // takes back an intent
	downgrade(ctx context.Context, h holding) (bool, error)
	adopt(ctx context.Context, h holding, from string) (bool, error) // from is the token before
	settle(ctx context.Context, h holding, window time.Duration) (bool, error)

	spend(ctx context.Context, r room, n int, per time.Duration) (wait time.Duration, err error)
	add(ctx context.Context, r room, x float64) error
	mean(ctx context.Context, r room) (mean float64, count int64, err error)

	// listen returns a channel with something in it after each release in the room, and at once when releases begin to be heard.
	listen(r room) (wake <-chan struct{}, stop func())
}
