// Delete and Set, and what a process does when it hears of them. The order that keeps old values from coming back: an invalidation has a number; a process
// first lets go of the flights of the key, then drops the entry and raises the floor below which it takes nothing for that key.

package onefill

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// SetOption tunes one Set.
type SetOption func(*said)

// SetTTL is how long the value is fresh, in place of the group's TTL. It must be above zero.
func SetTTL(d time.Duration) SetOption {
	return func(s *said) { s.ttl, s.ttlSet = min(d, maxDuration), true }
}

// SetTags gives the value tags.
func SetTags(tags ...string) SetOption { return func(s *said) { s.tags = append(s.tags, tags...) } }

// Delete drops what is cached for keys in every process of the pool. A load that is under way goes on for those who wait for it already; its value is not
// kept. It tries every member; if some could not be reached it returns an *InvalidateError that names them. Delete of no keys does nothing.
func (g *Group[V]) Delete(ctx context.Context, keys ...string) error {
	if g.stats.closed.Load() {
		return ErrClosed
	}
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	if len(keys) == 0 {
		return nil
	}
	var errs []error
	for len(keys) > 0 {
		n := oneMessage(keys)
		errs = append(errs, g.invalidate(ctx, &Invalidation{Group: g.name, Version: g.set.version, Keys: keys[:n:n]}))
		keys = keys[n:]
	}
	return errors.Join(errs...)
}

const (
	maxKeysAtOnce  = 1 << 14  // of one invalidation
	maxBytesAtOnce = 16 << 20 // of its keys together, or of the value of a Set: more than peers accept in one message is never sent
)

// oneMessage is how many of the keys go in one invalidation.
func oneMessage(keys []string) int {
	size := 0
	for n, key := range keys {
		if size += len(key); n == maxKeysAtOnce || n > 0 && size > maxBytesAtOnce {
			return n
		}
	}
	return len(keys)
}

// Set stores v as the value of key, as if it had been loaded now: its owner keeps it, every other process of the pool drops what it has. Of two Sets at once
// the same one wins everywhere. If some members could not be reached it returns an *InvalidateError that names them.
func (g *Group[V]) Set(ctx context.Context, key string, v V, opts ...SetOption) error {
	var said said
	for _, o := range opts {
		if o != nil {
			o(&said)
		}
	}
	switch {
	case g.stats.closed.Load():
		return ErrClosed
	case int64(len(key)) > g.set.maxKeyBytes:
		return ErrKeyTooLong
	case said.ttlSet && said.ttl <= 0:
		return fmt.Errorf("onefill: SetTTL(%v): want a duration above 0", said.ttl)
	}
	e, err := g.made(key, v, said, 0, 0, "")
	if err != nil {
		return err
	}
	inv := &Invalidation{Group: g.name, Version: g.set.version, Keys: []string{key}}
	if int64(len(e.Data)) <= min(g.set.maxValueBytes, maxBytesAtOnce) {
		inv.Value = g.answer(e, 0)
	} else {
		g.stats.tooLarge.Add(1) // the old value goes all the same
	}
	return g.invalidate(ctx, inv)
}

// rounds bounds how often an invalidation is spread again because a process already had something with a higher number.
const rounds = 3

// invalidate does what a call of Delete or Set asks for. It returns when that is done, or with ctx's error as soon as ctx ends; then it goes on in the background.
func (g *core) invalidate(ctx context.Context, inv *Invalidation) error {
	done := make(chan error, 1)
	if !g.mesh.tasks.Go(func(context.Context) { done <- g.invalidateAll(context.WithoutCancel(ctx), inv) }) {
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// invalidateAll gives inv a number and applies it everywhere. Where a process held a value with a number as high, that value may come from a load that began
// before, so the number was too low: it goes round again with a higher one.
func (g *core) invalidateAll(ctx context.Context, inv *Invalidation) error {
	ctx, trip, end := g.mesh.begin(ctx, Trip{Kind: TripInvalidate, Group: g.name, Key: inv.Keys[0]})
	inv.Trace = trip.Trace
	var err error
	for range rounds {
		inv.Number = g.mesh.nextNumber()
		tierErr := g.invalidateTier(ctx, inv)
		if inv.Value != nil {
			inv.Value.Number = inv.Number
			if g.tier() == nil || tierErr != nil { // Lamport's numbers may tie: of two Sets, the later one finds the other's value and goes round again
				inv.Value.Number = g.mesh.nextNumber()
			}
			inv.Value.Vouched = inv.Value.Number
		}
		own := g.mesh.Apply(inv)
		acks := g.mesh.spread(ctx, inv)
		err = g.unreached(acks, tierErr)
		highest := own.Highest
		for _, a := range acks {
			highest = max(highest, a.Highest)
		}
		g.mesh.Merge(highest)
		if highest < inv.Number {
			break
		}
	}
	g.stats.invalidations.Add(1)
	end(Result{Outcome: OutcomeLocal, Err: err, Number: inv.Number})
	return err
}

// spreadDrop drops what other processes hold of a key up to a number that is known.
func (g *core) spreadDrop(ctx context.Context, inv *Invalidation) error {
	return g.unreached(g.mesh.spread(ctx, inv), nil)
}

// invalidateTier applies inv to the tier, whose number for it counts from then on.
func (g *core) invalidateTier(ctx context.Context, inv *Invalidation) error {
	if g.tier() == nil {
		return nil
	}
	number, err := g.tier().Invalidate(ctx, inv, g.mesh.Clock())
	if err == nil {
		inv.Number = number
	}
	return err
}

// unreached names the processes that an invalidation did not reach.
func (g *core) unreached(acks []Ack, tier error) error {
	var e *InvalidateError
	if tier != nil {
		e = &InvalidateError{Group: g.name, Unreached: []string{"tier"}, Err: tier}
	}
	for _, a := range acks {
		if a.Err == nil {
			continue
		}
		if e == nil {
			e = &InvalidateError{Group: g.name}
		}
		e.Unreached = append(e.Unreached, a.Peer)
		e.Err = errors.Join(e.Err, a.Err)
	}
	if e == nil {
		return nil
	}
	g.stats.unreached.Add(uint64(len(e.Unreached)))
	return e
}

// Apply implements Member.
func (m *Mesh) Apply(inv *Invalidation) Ack {
	m.Merge(inv.Number)
	ack := Ack{Peer: m.self()}
	g := m.group(inv.Group)
	if g == nil {
		return ack
	}
	var next *entry
	if inv.Value != nil && len(inv.Keys) == 1 && g.set.version == inv.Version { // keys are old in every version, a value has one
		next = g.given(inv.Keys[0], inv.Value)
	}
	for _, key := range inv.Keys {
		ack.Highest = max(ack.Highest, g.drop(key, inv.Number, next))
	}
	return ack
}

// drop lets go of everything that this process has for key up to number, keeps next in its place if it is not nil, and returns the highest number that it has
// beyond.
func (g *core) drop(key string, number uint64, next *entry) (highest uint64) {
	began := g.fills.Detach(key) // before the floor rises: see vouch
	g.asks.Detach(key)
	if began <= number {
		began = 0
	}
	highest = max(began, g.cache.Invalidate(g.cache.Hash(g.account, key), g.account, key, number, next))
	if next != nil { // and what began before next was there
		g.fills.Detach(key)
		g.asks.Detach(key)
	}
	return highest
}

// given returns the entry for a value that Set brings, nil if the key is not this process's to keep.
func (g *core) given(key string, a *Answer) *entry {
	if g.mesh.route(g.name, key)[0] != nil || !g.mesh.listed() || g.stats.closed.Load() {
		return nil
	}
	e, err := g.received(key, a)
	if err != nil {
		g.stats.decodeErrors.Add(1)
		g.mesh.log.Error("a value that was set cannot be decoded", groupAttr(g.name), errAttr(err))
		return nil
	}
	g.own(e, a.Life)
	return e
}

// own makes an entry that came from elsewhere this process's own: it lives as long as it was given.
func (g *core) own(e *entry, life time.Duration) {
	e.Flags &^= hotEntry | cappedEntry
	if life > 0 {
		e.Flags &^= finalEntry
	}
	g.live(e, min(life, maxDuration))
}
