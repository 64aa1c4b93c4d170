// This file is the tenure: one grant by the store and everything that all leases on it share. What a holder sees of it is in lease.go.

package lock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/lease"
)

// tenure is one grant.
type tenure struct {
	client *Client
	room   room
	token  string
	held   *lease.Held[*tenure]

	mu     sync.Mutex // guards everything below and the stage of each lease; the keeper's lock may be taken under it, never the other way round
	op     op
	fence  uint64
	turn   *lease.Turn // of a lease held alone: the place at the head of this process's line
	leases []*Lease    // not released yet: the first and the ones within
	handed bool        // the token has been taken
	unsure bool        // a downgrade had no answer: it may come to pass at any moment
	ended  error       // ErrLost or ErrClosed, once it is over before its release
}

func newTenure(c *Client, a ask, fence uint64, sent time.Time) *tenure {
	t := &tenure{client: c, room: a.room, token: a.token, op: a.op, fence: fence}
	t.held = lease.NewHeld(t, a.ttl, sent, (*tenure).lost)
	return t
}

// keep puts the tenure into the keeper's care and returns its first lease.
func (t *tenure) keep(ctx context.Context) (*Lease, error) {
	l := t.open(ctx)
	if !t.client.keeper.Keep(t.held) || t.client.closed() {
		t.end(ErrClosed)
		return nil, ErrClosed
	}
	return l, nil
}

// open adds a lease to the tenure.
func (t *tenure) open(ctx context.Context) *Lease {
	l := &Lease{tenure: t}
	l.ctx, l.cancel = context.WithCancelCause(withHeld(context.WithoutCancel(ctx), t))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended != nil {
		l.cancel(t.ended)
	}
	t.leases = append(t.leases, l)
	return l
}

// nest returns a lease within this tenure for a caller whose context holds it already, unless it wants more than is held.
func (t *tenure) nest(ctx context.Context, o op) (*Lease, error) {
	if o == opWrite && t.reading() {
		return nil, ErrDeadlock
	}
	l := t.open(ctx)
	if err := l.usable(); err != nil {
		return nil, err
	}
	return l, nil
}

// lost ends the tenure because the store or the clock said so. The keeper calls it once it has let go.
func (t *tenure) lost() {
	t.client.keeper.Drop(t.held)
	t.end(ErrLost)
}

// end ends every lease of the tenure with a cause, and reports whether the token has been taken.
func (t *tenure) end(cause error) (handed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended == nil {
		t.ended = cause
		for _, l := range t.leases {
			l.cancel(cause)
		}
	}
	t.turn.Leave()
	return t.handed
}

// release takes one lease out, and reports whether it was the last, so that the store must be told.
func (t *tenure) release(l *Lease) (last bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.stage == stageReleased {
		return false, ErrNotHeld
	}
	l.stage = stageReleased
	if t.ended != nil {
		return false, t.ended
	}
	t.leases = slices.DeleteFunc(t.leases, func(other *Lease) bool { return other == l })
	l.cancel(nil)
	return len(t.leases) == 0, nil
}

// released passes the turn on after the store has been told, notes whether it confirmed, and returns what ended the tenure meanwhile, if anything did.
func (t *tenure) released(l *Lease, confirmed bool) (ended error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.turn.Leave()
	if !confirmed {
		l.stage = stageUnconfirmed
	}
	return t.ended
}

// become notes an upgrade, with its new fence, or a downgrade, which may be in doubt.
func (t *tenure) become(o op, fence uint64, unsure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.op, t.fence, t.unsure = o, max(t.fence, fence), unsure
}

// reading reports whether it is a read lease.
func (t *tenure) reading() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.op == opRead
}

// upgradable returns why the tenure cannot be upgraded, or nil.
func (t *tenure) upgradable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.op != opRead:
		return fmt.Errorf("%w: Upgrade of a lease that is not a read lease", ErrInvalid)
	case t.unsure:
		return fmt.Errorf("%w: Upgrade after a Downgrade that had no answer", ErrUnavailable)
	}
	return nil
}

// holding is the tenure as its store knows it.
func (t *tenure) holding() holding {
	return holding{room: t.room, token: t.token, ttl: t.client.keeper.TTL(t.held)}
}

// over reports whether nothing is held any more.
func (t *tenure) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended != nil || len(t.leases) == 0
}

// heldKey is under which a context carries the tenures that its caller holds.
type heldKey struct{}

// link is one tenure in a context; the ones before it are found through outer.
type link struct {
	tenure *tenure
	outer  *link
}

func withHeld(ctx context.Context, t *tenure) context.Context {
	outer, _ := ctx.Value(heldKey{}).(*link)
	return context.WithValue(ctx, heldKey{}, &link{t, outer})
}

// heldIn returns the tenure of a room that the context's caller holds, or nil.
func heldIn(ctx context.Context, c *Client, r room) *tenure {
	l, _ := ctx.Value(heldKey{}).(*link)
	for ; l != nil; l = l.outer {
		if l.tenure.client == c && l.tenure.room == r && !l.tenure.over() {
			return l.tenure
		}
	}
	return nil
}
