// MemoryStore: a tier inside one process, with the promises of the one in Redis. It knows no leases: whoever fills is in this process and ends its claim.

package l2

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/onefill/onefill"
)

// MemoryStore is a tier for meshes of one process. Its methods are for the meshes; they are safe for concurrent use.
type MemoryStore struct {
	mu      sync.Mutex // guards what follows and every memoryEntry; no mesh is called under it
	entries map[onefill.TierKey]*memoryEntry
	sweepAt int // when there are this many entries, those that have ended are looked for
	members []onefill.TierMember
	left    int // how many have closed
}

// memoryEntry is what is known of one key.
type memoryEntry struct {
	fence uint64
	done  bool            // no load is under way with the fence
	value *onefill.Answer // nil for none
	ends  time.Time       // of the value's life

	claim   *memoryClaim    // nil for none
	outcome *onefill.Answer // how a load ended that left no value; its number is the fence
	forget  time.Time       // when the outcome is forgotten

	news chan struct{} // closed and replaced when the claim ends or has something to say
}

// Memory returns a tier inside this process, which shares values and claims between meshes of one namespace, as Redis does between clusters. It keeps each value
// until its life ends, whatever memory that takes.
func Memory() *MemoryStore {
	return &MemoryStore{entries: make(map[onefill.TierKey]*memoryEntry), sweepAt: minSweep}
}

// minSweep is the least number of entries at which those that have ended are looked for.
const minSweep = 1 << 10

// Join implements onefill.Tier.
func (s *MemoryStore) Join(m onefill.TierMember) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.members) > 0 && s.members[0].Namespace() != m.Namespace() {
		return fmt.Errorf("%w: %q, not %q", errOtherSpace, s.members[0].Namespace(), m.Namespace())
	}
	s.members = append(s.members, m)
	return nil
}

// Ready implements onefill.Tier; it is ready.
func (s *MemoryStore) Ready(context.Context) error { return nil }

// State implements onefill.Tier: "up".
func (s *MemoryStore) State() string { return "up" }

// Close implements onefill.Tier. With the last mesh the memory is given back.
func (s *MemoryStore) Close(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left++; s.left >= len(s.members) {
		clear(s.entries)
		s.members, s.left = nil, 0
	}
	return nil
}

// Claim implements onefill.Tier.
func (s *MemoryStore) Claim(_ context.Context, key onefill.TierKey, ask onefill.ClaimAsk) (onefill.ClaimReply, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	e := s.entry(key, now)
	switch {
	case e.value != nil && e.value.Number > ask.Have:
		value := *e.value
		value.Life = e.ends.Sub(now)
		return onefill.ClaimReply{State: onefill.ClaimValue, Fence: value.Number, Value: &value}, nil
	case ask.Waited != 0 && e.outcome != nil && e.outcome.Number == ask.Waited:
		outcome := *e.outcome
		return onefill.ClaimReply{State: onefill.ClaimFailed, Fence: outcome.Number, Value: &outcome}, nil
	case ask.NoClaim && !e.done && e.fence > ask.Have && e.fence > ask.Floor: // of a load that is under way, which need not be the only one
		return onefill.ClaimReply{State: onefill.ClaimGranted, Fence: e.fence, Claim: &memoryClaim{s: s, key: key, fence: e.fence}}, nil
	case e.claim != nil && !ask.NoClaim:
		return onefill.ClaimReply{State: onefill.ClaimHeld, Fence: e.fence, Left: DefaultClaimTTL, Waits: slices.Clone(e.claim.flights)}, nil
	}
	e.fence, e.done = mint(now, e.fence, ask.Floor), false
	c := &memoryClaim{s: s, key: key, fence: e.fence, flights: []uint64{ask.Flight}}
	if !ask.NoClaim {
		e.claim = c
	}
	return onefill.ClaimReply{State: onefill.ClaimGranted, Fence: e.fence, Claim: c}, nil
}

// Wait implements onefill.Tier.
func (s *MemoryStore) Wait(ctx context.Context, key onefill.TierKey, held onefill.ClaimReply) error {
	s.mu.Lock()
	e := s.entry(key, time.Now())
	if e.claim == nil || e.fence != held.Fence || !slices.Equal(e.claim.flights, held.Waits) {
		s.mu.Unlock()
		return ctx.Err()
	}
	news := e.news
	s.mu.Unlock()
	select {
	case <-news:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Invalidate implements onefill.Tier. Every mesh hears of it, also the one that it came from.
func (s *MemoryStore) Invalidate(_ context.Context, inv *onefill.Invalidation, floor uint64) (uint64, error) {
	s.mu.Lock()
	now := time.Now()
	number := max(floor, inv.Number)
	for _, key := range inv.Keys {
		number = mint(now, s.entry(onefill.TierKey{Group: inv.Group, Version: inv.Version, Key: key}, now).fence, number)
	}
	for _, key := range inv.Keys {
		e := s.entry(onefill.TierKey{Group: inv.Group, Version: inv.Version, Key: key}, now)
		e.fence, e.done, e.value, e.outcome = number, true, nil, nil
		e.release()
		if v := inv.Value; v != nil && !v.Final && v.Life > 0 {
			e.fence = number + 1
			e.keep(v, now)
		}
	}
	members := slices.Clone(s.members)
	s.mu.Unlock()
	heard := *inv
	heard.Number, heard.Value = number, nil
	for _, m := range members {
		m.Merge(number + 1)
		if len(members) > 1 {
			m.Hear(&heard)
		}
	}
	return number, nil
}

// mint is the next fence, as it is in Redis.
func mint(now time.Time, last, floor uint64) uint64 {
	return max(uint64(now.UnixMicro()), last+1, floor+1)
}

// entry returns what is known of a key at now. The caller holds mu.
func (s *MemoryStore) entry(key onefill.TierKey, now time.Time) *memoryEntry {
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= s.sweepAt {
			s.sweep(now)
		}
		e = &memoryEntry{news: make(chan struct{})}
		s.entries[key] = e
	}
	e.expire(now)
	return e
}

// expire drops what has ended.
func (e *memoryEntry) expire(now time.Time) {
	if e.value != nil && !now.Before(e.ends) {
		e.value = nil
	}
	if e.outcome != nil && !now.Before(e.forget) {
		e.outcome = nil
	}
}

// sweep forgets the keys of which nothing is left but a fence, which time has overtaken. The caller holds mu.
func (s *MemoryStore) sweep(now time.Time) {
	for key, e := range s.entries {
		if e.expire(now); e.value == nil && e.outcome == nil && e.claim == nil && e.fence < uint64(now.UnixMicro()) {
			delete(s.entries, key)
		}
	}
	s.sweepAt = max(minSweep, 2*len(s.entries))
}

// keep stores a value under the entry's fence.
func (e *memoryEntry) keep(a *onefill.Answer, now time.Time) {
	value := *a
	value.Number, value.Vouched = e.fence, e.fence
	e.value, e.ends = &value, now.Add(a.Life)
}

// release ends the claim and wakes who waits.
func (e *memoryEntry) release() {
	if e.claim == nil {
		return
	}
	e.claim = nil
	e.tell()
}

func (e *memoryEntry) tell() {
	close(e.news)
	e.news = make(chan struct{})
}

// memoryClaim is the right to fill one key.
type memoryClaim struct {
	s       *MemoryStore
	key     onefill.TierKey
	fence   uint64
	flights []uint64 // guarded by the store's mu
}

// Fence implements onefill.Claim.
func (c *memoryClaim) Fence() uint64 { return c.fence }

// Waits implements onefill.Claim.
func (c *memoryClaim) Waits(flights []uint64) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if e := c.s.entries[c.key]; e != nil && e.claim == c && !slices.Equal(c.flights, flights) {
		c.flights = slices.Clone(flights)
		e.tell()
	}
}

// Fill implements onefill.Claim.
func (c *memoryClaim) Fill(_ context.Context, a *onefill.Answer) (stored bool, err error) {
	return c.over(a), nil
}

// Abandon implements onefill.Claim.
func (c *memoryClaim) Abandon(_ context.Context, a *onefill.Answer) error {
	switch {
	case a == nil, a.Status == onefill.StatusClosed, a.Status == onefill.StatusBusy:
		c.over(nil)
	default:
		final := *a
		final.Final = true
		c.over(&final)
	}
	return nil
}

// over ends the claim with what came of it, nil for nothing, and reports whether it was still held.
func (c *memoryClaim) over(a *onefill.Answer) bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	e := c.s.entries[c.key]
	if e == nil || e.fence != c.fence {
		return false
	}
	if e.claim == c {
		defer e.release()
	} else if a == nil { // without a lease there is nothing to give up
		return true
	}
	if e.done { // by a load with the same fence
		return true
	}
	now := time.Now()
	e.outcome, e.done = nil, true
	if a != nil {
		stays := a.Status == onefill.StatusValue || a.Status == onefill.StatusNotFound
		if stays {
			e.value = nil
		}
		if stays && !a.Final && a.Life > 0 {
			e.keep(a, now)
		}
		outcome := *a
		outcome.Number, outcome.Vouched, outcome.Final = c.fence, c.fence, true
		e.outcome, e.forget = &outcome, now.Add(outcomeLife)
	}
	return true
}
