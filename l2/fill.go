// A claim that is held: how it is kept, how it ends with a value or without one, and what it says meanwhile to those who wait. How one is granted stands in
// claim.go, what happens inside Redis in scripts.go.

package l2

import (
	"context"
	"sync"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/lease"
)

// claim is the right to fill one key, or without a lease no more than the leave to.
type claim struct {
	s     *Store
	key   onefill.TierKey
	names names
	token string
	fence uint64
	held  *lease.Held[*claim] // nil without a lease
	spare time.Duration       // what is left of TierTimeout for the end

	mu      sync.Mutex // guards what follows
	flights string     // what those who wait are to know
	said    string     // what the claim in Redis says
	saying  bool
	over    bool // nothing is to be said any more
}

// hold takes a claim that was granted into care.
func (s *Store) hold(a *asking, token string, fence uint64, sent time.Time) (onefill.Claim, error) {
	flights := senderOf(a.ask.Flight)
	c := &claim{s: s, key: a.key, names: a.names, token: token, fence: fence, flights: flights, said: flights}
	c.spare = max(time.Until(a.ends), s.cfg.TierTimeout/10)
	if token == "" {
		c.over = true
		return c, nil
	}
	c.held = lease.NewHeld(c, s.cfg.ClaimTTL, sent, (*claim).lost)
	if !s.keeper.Keep(c.held) {
		return nil, errClosed
	}
	return c, nil
}

// end ends the care for the claim.
func (c *claim) end() {
	if c.held == nil {
		return
	}
	c.s.keeper.Drop(c.held)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
}

// lost is told when the lease has run out by this process's own clock, or is another's. The fill is tried all the same: Redis knows by the fence whether
// it comes too late.
func (c *claim) lost() {
	c.end()
	c.s.log.Warn("a claim was lost: another process may load its key again", groupAttr(c.key))
}

// Fence implements onefill.Claim.
func (c *claim) Fence() uint64 { return c.fence }

// Fill implements onefill.Claim. Where the tier does not answer, it goes on trying in the background for as long as the lease is held.
func (c *claim) Fill(ctx context.Context, a *onefill.Answer) (stored bool, err error) {
	f, err := c.filling(a)
	if err != nil { // nothing can be stored: let others try
		c.end()
		if c.held != nil {
			c.s.giveBack(c.names, c.token)
		}
		return false, err
	}
	stored, err = c.fill(ctx, c.spare, f)
	if err == nil || isFull(err) || c.held == nil || !c.s.tasks.Go(func(ctx context.Context) { c.insist(ctx, f) }) {
		c.end()
	}
	return stored, err
}

// filling is a value on its way into Redis.
type filling struct {
	envelope []byte
	ends     time.Time     // of the value's life; zero where it is not to be stored
	outcome  time.Duration // how long those who waited find it
}

// filling prepares an answer. One that lives too shortly for those who wait to find it is kept for them apart.
func (c *claim) filling(a *onefill.Answer) (filling, error) {
	envelope, err := c.s.values.write(c.key, c.fence, a)
	f := filling{envelope: envelope}
	stays := a.Status == onefill.StatusValue || a.Status == onefill.StatusNotFound
	if stays && !a.Final && a.Life >= time.Millisecond {
		f.ends = time.Now().Add(a.Life)
	}
	if f.ends.IsZero() || a.Life < outcomeLife {
		f.outcome = outcomeLife
	}
	return f, err
}

// fill makes the trip, or two where the value is large and for those alone who wait.
func (c *claim) fill(ctx context.Context, bound time.Duration, f filling) (stored bool, err error) {
	deadline := time.Now().Add(bound)
	var life int64
	if !f.ends.IsZero() {
		life = max(1, time.Until(f.ends).Milliseconds())
	}
	envelope, outcome := f.envelope, f.outcome
	switch {
	case life == 0 && len(envelope) > maxOutcome:
		envelope, outcome = nil, 0
	case life == 0 && len(envelope) > largeOutcome:
		envelope = nil
	}
	for {
		args := []any{c.token, digits(c.fence), life, envelope, outcome.Milliseconds(), fenceMillis}
		reply, err := c.s.run(ctx, time.Until(deadline), scriptFill, c.names.all(), args, nil)
		if err != nil {
			return false, err
		}
		if reply != int64(2) {
			return reply == int64(1), nil
		}
		envelope = f.envelope
	}
}

// insist tries to fill until it is known whether the value is stored, or the claim is lost.
func (c *claim) insist(ctx context.Context, f filling) {
	defer c.end()
	for {
		if c.s.keeper.Validity(c.held).Left(time.Now()) <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(probeMin):
		}
		if _, err := c.fill(ctx, c.s.cfg.TierTimeout, f); err == nil || isFull(err) {
			return
		}
	}
}

// Abandon implements onefill.Claim. A failure that says nothing about the key, such as that this process is closing, is not handed on: one of those who wait
// fills in its place. So does no answer at all.
func (c *claim) Abandon(ctx context.Context, a *onefill.Answer) error {
	if a != nil && a.Status == onefill.StatusNotFound { // it is a fact, and ends the life of a value that was found before
		final := *a
		final.Final = true
		_, err := c.Fill(ctx, &final)
		return err
	}
	if c.end(); c.held == nil {
		return nil
	}
	envelope := ""
	if a != nil && a.Status != onefill.StatusClosed && a.Status != onefill.StatusBusy {
		b, err := c.s.values.write(c.key, c.fence, a)
		if err != nil {
			return err
		}
		envelope = string(b)
	}
	_, err := c.s.run(ctx, c.spare, scriptAbandon, c.names.all(), []any{c.token, envelope, outcomeLife.Milliseconds(), fenceMillis}, nil)
	return err
}

// Waits implements onefill.Claim: it makes a note, and a task tells Redis.
func (c *claim) Waits(flights []uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flights = writeFlights(flights)
	if c.flights == c.said || c.saying || c.over {
		return
	}
	c.saying = c.s.tasks.Go(func(ctx context.Context) { c.say(ctx) })
}

// say brings the claim in Redis up to date. What fails is left to the next renewal.
func (c *claim) say(ctx context.Context) {
	for {
		c.mu.Lock()
		if c.flights == c.said || c.over {
			c.saying = false
			c.mu.Unlock()
			return
		}
		flights := c.flights
		c.mu.Unlock()
		_, err := c.s.run(ctx, c.s.cfg.TierTimeout, scriptRenew, c.names.all(), c.renewal(flights, c.s.cfg.ClaimTTL), nil)
		c.mu.Lock()
		if c.said = flights; err != nil {
			c.said, c.saying = "", false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// renewal are the arguments of scriptRenew.
func (c *claim) renewal(flights string, ttl time.Duration) []any {
	return []any{c.token, digits(c.fence), ttl.Milliseconds(), flights, fenceMillis}
}

// renew extends claims, all in one pipeline. It passes the breaker by: nobody waits for it, and a claim is worth trying for.
func (s *Store) renew(ctx context.Context, round []lease.Renewal[*claim], bound time.Duration) error {
	calls := make([]lease.Call, len(round))
	for i, r := range round {
		c := r.Lease
		c.mu.Lock()
		c.said = c.flights
		calls[i] = lease.Call{Keys: c.names.all(), Args: c.renewal(c.flights, r.TTL)}
		c.mu.Unlock()
	}
	began := time.Now()
	answers, err := s.runner.RunAll(ctx, bound, scriptRenew, calls)
	for i, a := range answers {
		if a.Err != nil {
			err = a.Err
		}
		round[i].Kept = a.Reply == int64(1)
	}
	s.settle(false, began, judge(ctx, err), err)
	return wrapped(err)
}
