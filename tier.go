// What the read path needs of the store that all clusters share, and its way through it: read or claim, wait, load, fill. Package l2 implements Tier.

package onefill

import (
	"context"
	"errors"
	"time"
)

// Tier is the store that all clusters share, see package l2. It serves one mesh or several of one process; its methods are safe for concurrent use. No error
// of a tier ever reaches a caller of Get: where the tier fails, the mesh does without it.
type Tier interface {
	// Join attaches a mesh: its namespace, and whom to tell what other clusters say.
	Join(TierMember) error
	// Claim reads the key's value or, if there is none that serves, claims the right to fill it, in one trip. It returns within TierTimeout.
	Claim(context.Context, TierKey, ClaimAsk) (ClaimReply, error)
	// Wait returns when it is time to Claim again a key that is held: its holder is done, its lease has run out, or a while has passed. It returns ctx's
	// error if ctx ends first.
	Wait(context.Context, TierKey, ClaimReply) error
	// Invalidate drops the values of keys, takes the claims on them away, and tells all clusters. With inv.Value it stores that value of the only key in
	// their place. It returns the number that the tier gave the invalidation: above floor, inv.Number, and every number of the keys before.
	Invalidate(ctx context.Context, inv *Invalidation, floor uint64) (uint64, error)
	// Ready returns when the tier has answered once, or not in time.
	Ready(context.Context) error
	// State is "up", "down", or "probing" where it was down and is being tried again.
	State() string
	// Close abandons the claims that are still held and ends the tier's goroutines for this mesh.
	Close(context.Context) error
}

// TierMember is a mesh as its tier sees it.
type TierMember interface {
	Namespace() string
	// Hear applies an invalidation of another cluster.
	Hear(*Invalidation)
	Clock() uint64
	Merge(uint64)
}

// TierKey names one entry in the tier.
type TierKey struct{ Group, Version, Key string }

// ClaimAsk is what a process says when it reads or claims.
type ClaimAsk struct {
	NoClaim bool   // do not hold others off: without a value the reply is ClaimGranted, whoever else fills
	Have    uint64 // the number of a value that it has already, or cannot decode: only a newer one serves; 0 for none
	Waited  uint64 // the fence of the claim that it has waited for, 0 for none: a failure of that load is its answer
	Floor   uint64 // the highest number that it knows for the key
	Flight  uint64 // the ID of the fill that asks
}

// ClaimState says what came of a Claim.
type ClaimState uint8

// What comes of a Claim.
const (
	ClaimValue   ClaimState = iota + 1 // Value is the entry
	ClaimFailed                        // the load that was waited for failed, or its value is not kept: Value says how it ended
	ClaimHeld                          // another process fills
	ClaimGranted                       // Claim is the right to fill
)

// ClaimReply is the tier's answer to a Claim.
type ClaimReply struct {
	State ClaimState
	Value *Answer       // of ClaimValue and ClaimFailed; with ClaimHeld and ClaimGranted a stale value, if there is one
	Fence uint64        // of the claim that is held or granted
	Left  time.Duration // held: until its lease runs out if it is not renewed
	Waits []uint64      // held: the flights that the holder's fill waits for, itself first
	Claim Claim         // granted
}

// Claim is the right to fill one key: a lease that its Tier renews until it is filled or abandoned.
type Claim interface {
	Fence() uint64
	// Waits tells those who wait for this claim what the fill waits for in turn.
	Waits(flights []uint64)
	// Fill stores the value and releases the claim. A value with Final, or without bytes, goes to those who wait and is not stored. stored is false where the
	// claim was lost meanwhile: then the value must not be kept anywhere. It returns within TierTimeout.
	Fill(context.Context, *Answer) (stored bool, err error)
	// Abandon releases the claim of a load that failed; those who wait for it get the failure.
	Abandon(context.Context, *Answer) error
}

// Hear implements TierMember.
func (m *Mesh) Hear(inv *Invalidation) { m.Apply(inv) }

// throughTier fills the key of c with the tier's help: it takes the value that is there, waits for another cluster's load, or claims the key and loads it.
func (g *core) throughTier(ctx context.Context, c *call, have uint64) (found, error) {
	key := TierKey{g.name, g.set.version, c.Key()}
	w := &tierWait{since: time.Now()}
	for {
		reply, err := g.claim(ctx, c, key, have, w)
		switch {
		case err != nil && w.living():
			if err := w.pause(g.mesh.tasks.Context()); err != nil {
				return found{}, err
			}
		case err != nil: // the tier is down: the pool's owner fills without it
			g.stats.tierErrors.Add(1)
			return g.load(ctx, c, c.Key(), nil)
		case reply.State == ClaimGranted:
			return g.load(ctx, c, c.Key(), reply.Claim)
		case reply.State == ClaimHeld && g.patience(w) == 0 && reply.Value != nil:
			f, err := g.takeOutcome(c.Key(), reply.Value)
			f.how = OutcomeStale
			return f, err
		case reply.State == ClaimHeld && g.patience(w) == 0 && g.set.loadAnyway:
			return g.load(ctx, c, c.Key(), nil)
		case reply.State == ClaimHeld:
			if err := g.await(ctx, c, key, reply, w); err != nil {
				return found{}, err
			}
		case reply.State == ClaimFailed:
			return g.takeOutcome(c.Key(), reply.Value)
		default:
			f, err := g.takeTier(c, reply.Value)
			if err == nil {
				return f, nil
			}
			have = reply.Value.Number // it cannot be decoded: a value that can be claimed over
		}
	}
}

// tierWait is what a fill knows of the claim that it waits for.
type tierWait struct {
	since  time.Time
	fence  uint64
	leased time.Time // until when the holder's lease is known to run
}

// patience is how much longer a fill waits for another cluster before it looks for a way around, 0 when that is over.
func (g *core) patience(w *tierWait) time.Duration { return max(0, g.set.patience-time.Since(w.since)) }

// living reports whether the claim that was seen may still be held.
func (w *tierWait) living() bool { return time.Now().Before(w.leased) }

// pause lets a little time pass where the tier does not answer while a claim that was seen may still be held.
func (w *tierWait) pause(closing context.Context) error {
	timer := time.NewTimer(min(time.Until(w.leased), 100*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-closing.Done():
		return ErrClosed
	}
}

// claim makes the trip to the tier.
func (g *core) claim(ctx context.Context, c *call, key TierKey, have uint64, w *tierWait) (ClaimReply, error) {
	ctx, _, end := g.mesh.begin(ctx, Trip{Kind: TripClaim, Group: g.name, Key: key.Key})
	floor := max(have, g.cache.Floor(g.account, key.Key))
	reply, err := g.mesh.tier.Claim(ctx, key, ClaimAsk{NoClaim: g.set.noClaim, Have: have, Waited: w.fence, Floor: floor, Flight: c.ID()})
	if err == nil {
		g.mesh.Merge(reply.Fence)
		if reply.Value != nil {
			g.mesh.Merge(reply.Value.Number)
		}
	}
	result := Result{Number: reply.Fence, Err: err}
	if reply.State == ClaimValue {
		result.Outcome = OutcomeTier
	}
	end(result)
	return reply, err
}

// await waits for another cluster's load.
func (g *core) await(ctx context.Context, c *call, key TierKey, reply ClaimReply, w *tierWait) error {
	ctx, _, end := g.mesh.begin(ctx, Trip{Kind: TripWait, Group: g.name, Key: key.Key})
	w.fence, w.leased = reply.Fence, time.Now().Add(reply.Left)
	c.SetRemote(reply.Waits)
	waiting, cancel := context.WithCancel(ctx)
	if left := g.patience(w); left > 0 {
		waiting, cancel = context.WithTimeout(ctx, left)
	}
	defer cancel()
	defer context.AfterFunc(g.mesh.tasks.Context(), cancel)()
	err := g.mesh.tier.Wait(waiting, key, reply)
	c.SetRemote(nil)
	switch {
	case g.mesh.tasks.Context().Err() != nil:
		err = ErrClosed
	case waiting.Err() != nil: // out of patience: the next look at the claim says what there is to do
		err = nil
	}
	end(Result{Number: reply.Fence, Err: err})
	return err
}

// takeTier keeps a value that the tier holds.
func (g *core) takeTier(c *call, a *Answer) (found, error) {
	e, err := g.received(c.Key(), a)
	if err != nil {
		g.stats.decodeErrors.Add(1)
		g.mesh.log.Warn("a value in the tier cannot be decoded: loading it again", groupAttr(g.name), errAttr(err))
		return found{}, err
	}
	g.own(e, a.Life)
	g.stats.tierHits.Add(1)
	g.keep(e, g.vouch(&g.fills, c))
	return found{entry: e, how: OutcomeTier}, nil
}

// takeOutcome hands on what came of another cluster's load that left no value in the tier: a failure, or a value for those alone who waited.
func (g *core) takeOutcome(key string, a *Answer) (found, error) {
	if a == nil {
		return found{}, errors.New("onefill: the load of another cluster failed")
	}
	if a.Status != StatusValue {
		return found{loader: true}, a.failed("another cluster", g.name)
	}
	e, err := g.received(key, a)
	e.Flags |= finalEntry
	return found{entry: e, how: OutcomeTier}, err
}
