// This file renews leases and notices losses: one loop for any number of leases. How a lease is renewed in its store is the user's.

package lease

import (
	"context"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/tasks"
)

// Held is a lease in the care of a Keeper, for the user's L. Make it with NewHeld; only its Keeper changes it afterwards.
type Held[L any] struct {
	Lease L

	lost func(L)

	// Guarded by the Keeper's mu.
	ttl      time.Duration
	validity Validity
	renewAt  time.Time
	renewing bool
	epoch    int // rises when the TTL changes: an answer to a renewal with the old TTL says nothing about the new one
	place    int // in Keeper.held; -1 when not kept
}

// NewHeld returns a lease to be kept: granted for ttl by a request sent at sent, a reading of time.Now. lost is called at most once, in a task of the
// Keeper's, when the lease ran out by the holder's own clock or the store said that it is gone; never after Drop has returned true.
func NewHeld[L any](of L, ttl time.Duration, sent time.Time, lost func(L)) *Held[L] {
	return &Held[L]{Lease: of, lost: lost, ttl: ttl, validity: ValidFor(sent, ttl), renewAt: sent.Add(ttl / 3), place: -1}
}

// Renewal is one lease in a round of renewals.
type Renewal[L any] struct {
	Lease L
	TTL   time.Duration
	Kept  bool // to be set by the renewing function: the store confirms the lease for TTL

	held  *Held[L]
	epoch int
}

// Keeper renews each lease in its care every third of its TTL, all that are due in one round, and finds by the holder's own clock, without an answer from the
// store, the ones that ran out. One loop serves all leases; it holds no timer while there are none. It is safe for concurrent use.
type Keeper[L any] struct {
	tasks *tasks.Set
	renew func(ctx context.Context, round []Renewal[L], bound time.Duration) error

	mu      sync.Mutex // guards everything below, and the guarded fields of each Held; neither renew nor lost is called under it
	held    []*Held[L]
	running bool
	armed   time.Time // when the loop will look next; zero: when it is woken
	wake    chan struct{}
}

// NewKeeper returns a Keeper whose rounds call renew, in a task of set. renew sets Kept for each lease that the store confirmed; a lease left without is lost,
// unless renew returns an error: then nothing is known about any of them, and they are tried again until they run out. bound is how long renew may take.
func NewKeeper[L any](set *tasks.Set, renew func(ctx context.Context, round []Renewal[L], bound time.Duration) error) *Keeper[L] {
	return &Keeper[L]{tasks: set, renew: renew, wake: make(chan struct{}, 1)}
}

// Keep takes h into care. It reports false when the task set has been closed.
func (k *Keeper[L]) Keep(h *Held[L]) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.running {
		if !k.tasks.Go(k.loop) {
			return false
		}
		k.running = true
	}
	h.place = len(k.held)
	k.held = append(k.held, h)
	k.lookBy(h.next())
	return true
}

// Drop ends the care for h and reports whether it was still kept: false when it was lost or dropped before.
func (k *Keeper[L]) Drop(h *Held[L]) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.remove(h)
}

// Extend notes that the store confirmed h for ttl by a request sent at sent; from now on it is renewed for that long. It reports false when h is not kept.
func (k *Keeper[L]) Extend(h *Held[L], ttl time.Duration, sent time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.place < 0 {
		return false
	}
	h.epoch++
	h.ttl, h.validity, h.renewAt = ttl, ValidFor(sent, ttl), sent.Add(ttl/3)
	k.lookBy(h.next())
	return true
}

// Validity returns until when h may be relied on. Of a lease that is not kept any more it is the last one known.
func (k *Keeper[L]) Validity(h *Held[L]) Validity {
	k.mu.Lock()
	defer k.mu.Unlock()
	return h.validity
}

// TTL returns the length for which h is renewed.
func (k *Keeper[L]) TTL(h *Held[L]) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	return h.ttl
}

// Kept returns what is in care now, in no order.
func (k *Keeper[L]) Kept() []L {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make([]L, len(k.held))
	for i, h := range k.held {
		all[i] = h.Lease
	}
	return all
}

// remove takes h out of care. The caller holds mu.
func (k *Keeper[L]) remove(h *Held[L]) bool {
	if h.place < 0 {
		return false
	}
	last := len(k.held) - 1
	k.held[h.place] = k.held[last]
	k.held[h.place].place = h.place
	k.held[last] = nil
	k.held, h.place = k.held[:last], -1
	return true
}

// lookBy sees to it that the loop looks no later than at. The caller holds mu.
func (k *Keeper[L]) lookBy(at time.Time) {
	if !k.armed.IsZero() && !at.Before(k.armed) {
		return
	}
	k.armed = at
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// longestSleep bounds how late a machine that slept, with its monotonic clock standing still, notices what it lost meanwhile.
const longestSleep = time.Second

// loop runs until the task set is closed.
func (k *Keeper[L]) loop(ctx context.Context) {
	timer := time.NewTimer(longestSleep)
	defer timer.Stop()
	for {
		lost, round, next := k.look(time.Now())
		for _, h := range lost {
			h.lost(h.Lease)
		}
		if len(round) > 0 {
			k.tasks.Go(func(ctx context.Context) { k.run(ctx, round) })
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(min(time.Until(next), longestSleep))
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-timer.C:
		}
	}
}

// look removes what ran out, gathers the round that is due, and returns when to look next. A lease in the last sixth of its TTL before it is due joins a
// round that goes anyway, so that leases of one TTL soon share one round per third of it.
func (k *Keeper[L]) look(now time.Time) (lost []*Held[L], round []Renewal[L], next time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	due := false
	for i := 0; i < len(k.held); {
		h := k.held[i]
		if h.validity.Left(now) <= 0 {
			k.remove(h) // the last one takes its place
			lost = append(lost, h)
			continue
		}
		due = due || !h.renewing && !h.renewAt.After(now)
		i++
	}
	for _, h := range k.held {
		if due && !h.renewing && !h.renewAt.Add(-h.ttl/6).After(now) {
			h.renewing = true
			round = append(round, Renewal[L]{Lease: h.Lease, TTL: h.ttl, held: h, epoch: h.epoch})
		}
		if at := h.next(); next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if next.IsZero() && k.armed.After(now) {
		next = k.armed // one spare look: leases taken and released in quick succession do not wake the loop each time
	}
	k.armed = next
	return lost, round, next
}

// next returns when h needs the loop. The caller holds the Keeper's mu.
func (h *Held[L]) next() time.Time {
	ends := h.validity.Ends()
	if h.renewing || ends.Before(h.renewAt) {
		return ends
	}
	return h.renewAt
}

// run renews one round and notes what came of it.
func (k *Keeper[L]) run(ctx context.Context, round []Renewal[L]) {
	bound := round[0].TTL
	for _, r := range round {
		bound = min(bound, r.TTL)
	}
	sent := time.Now()
	err := k.renew(ctx, round, bound/4)
	for _, h := range k.note(round, sent, err) {
		h.lost(h.Lease)
	}
}

// note writes down the answers of a round and returns the leases that the store no longer knows.
func (k *Keeper[L]) note(round []Renewal[L], sent time.Time, err error) (lost []*Held[L]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range round {
		h := r.held
		h.renewing = false
		switch {
		case h.place < 0: // released or lost meanwhile
			continue
		case err != nil:
			h.renewAt = time.Now().Add(h.ttl / 12)
		case r.epoch != h.epoch: // extended meanwhile, by an answer that says more
		case r.Kept:
			h.validity, h.renewAt = ValidFor(sent, r.TTL), sent.Add(r.TTL/3)
		default:
			k.remove(h)
			lost = append(lost, h)
			continue
		}
		k.lookBy(h.next())
	}
	return lost
}
