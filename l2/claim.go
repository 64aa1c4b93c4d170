// The way of a fill through Redis: Claim reads or claims, Fill and Abandon end the claim, renew keeps it meanwhile. What happens inside Redis stands in
// scripts.go.

package l2

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/lease"
)

const (
	// fenceLife is how long a fence is kept after the last claim, renewal or invalidation of its key: twice the default LoadTimeout. A load that takes longer
	// renews it. A fence that is lost costs a load that is under way its place in the tier, no more.
	fenceLife = 2 * onefill.DefaultLoadTimeout
	// outcomeLife is how long those who waited find how a load ended that left no value.
	outcomeLife = time.Second
	// largeOutcome is the size above which an outcome is sent only if someone waits for it, at the price of a second trip, and maxOutcome the size above which
	// it is not sent at all: then those who waited claim the key again.
	largeOutcome = 64 << 10
	maxOutcome   = 64 << 20
	// maxFlights bounds what a claim says about what its holder waits for.
	maxFlights = 1 << 10
	// readings bounds how often one Claim asks again since what it got cannot be read.
	readings = 3
)

// Claim implements onefill.Tier.
func (s *Store) Claim(ctx context.Context, key onefill.TierKey, ask onefill.ClaimAsk) (onefill.ClaimReply, error) {
	if max(ask.Have, ask.Waited, ask.Floor) > maxNumber {
		return onefill.ClaimReply{}, errNumber
	}
	a := &asking{s: s, key: key, names: nameOf(s.space, key), ask: ask, ends: time.Now().Add(s.cfg.TierTimeout)}
	for range readings {
		reply, unread, err := a.once(ctx)
		if err != nil || unread == nil {
			return reply, err
		}
		s.log.Warn("a value in the tier cannot be read: loading it again", groupAttr(key), errAttr(unread))
	}
	return onefill.ClaimReply{}, unreadable(fmt.Errorf("%d in a row", readings))
}

// asking is one Claim under way.
type asking struct {
	s     *Store
	key   onefill.TierKey
	names names
	ask   onefill.ClaimAsk
	ends  time.Time
}

// once makes one trip. It returns as unread why the value or failure that it got cannot be read; the next trip asks for another.
func (a *asking) once(ctx context.Context) (reply onefill.ClaimReply, unread, err error) {
	s, sent := a.s, time.Now()
	token := newToken()
	args := []any{
		token, s.cfg.ClaimTTL.Milliseconds(), digits(a.ask.Have), digits(a.ask.Waited), strconv.FormatUint(a.ask.Floor, 10),
		writeFlights([]uint64{a.ask.Flight}), fenceLife.Milliseconds(),
	}
	seen := s.rooms.seen(a.names.claim)
	raw, err := s.run(ctx, time.Until(a.ends), scriptClaim, a.names.all(), args, func(raw any, err error) {
		if r, bad := parseClaim(raw, err); err != nil || bad == nil && r.state == onefill.ClaimGranted {
			s.giveBack(a.names, token) // granted, or perhaps granted, and nobody waits for it any more
		}
	})
	if err != nil {
		return reply, nil, err
	}
	r, err := parseClaim(raw, nil)
	if err != nil {
		return reply, nil, err
	}
	reply = onefill.ClaimReply{State: r.state, Fence: r.fence, Left: r.left}
	if r.envelope != "" {
		reply.Value, unread = s.values.read(a.key, r.envelope)
	}
	switch r.state {
	case onefill.ClaimValue:
		if unread != nil {
			a.ask.Have = r.fence
			return reply, unread, nil
		}
		reply.Value.Life, reply.Left = r.left, 0
	case onefill.ClaimFailed:
		if unread != nil {
			a.ask.Waited = 0
			return reply, unread, nil
		}
		reply.Value.Final = true
	case onefill.ClaimHeld:
		reply.Waits = readFlights(r.flights)
		s.rooms.confirm(a.names.claim, seen, r.fence)
	case onefill.ClaimGranted:
		reply.Claim, err = s.hold(a, token, r.fence, sent)
	}
	return reply, nil, err
}

// newToken names one attempt to claim, so that a reply that was lost is recognised when the client asks again.
func newToken() string {
	return strconv.FormatUint(rand.Uint64(), 36) + strconv.FormatUint(rand.Uint64(), 36)
}

// claimed is what scriptClaim says.
type claimed struct {
	state    onefill.ClaimState
	fence    uint64
	left     time.Duration
	envelope string
	flights  string
}

func parseClaim(raw any, err error) (claimed, error) {
	var c claimed
	if err != nil {
		return c, err
	}
	parts, ok := raw.([]any)
	if !ok || len(parts) != 5 {
		return c, fmt.Errorf("l2: an unexpected reply of type %T", raw)
	}
	state, _ := parts[0].(int64)
	fence, _ := parts[1].(string)
	left, _ := parts[2].(int64)
	c.envelope, _ = parts[3].(string)
	c.flights, _ = parts[4].(string)
	c.state, c.left = onefill.ClaimState(state), time.Duration(left)*time.Millisecond
	if c.fence, err = strconv.ParseUint(fence, 10, 64); err != nil {
		return c, fmt.Errorf("l2: an unexpected fence %q", fence)
	}
	return c, nil
}

// giveBack releases a claim that nobody wants.
func (s *Store) giveBack(n names, token string) {
	ctx := s.tasks.Context()
	_, _ = s.runner.Run(ctx, scriptAbandon, n.all(), []any{token, "", 0, fenceLife.Milliseconds()}, nil) // if that fails, its lease runs out
}

// claim is the right to fill one key.
type claim struct {
	s     *Store
	key   onefill.TierKey
	names names
	token string
	fence uint64
	held  *lease.Held[*claim]
	spare time.Duration // what is left of TierTimeout for the end

	mu      sync.Mutex // guards what follows
	flights string     // what those who wait are to know
	said    string     // what the claim in Redis says
	saying  bool
	over    bool // nothing is to be said any more
}

// hold takes a claim that was granted into care.
func (s *Store) hold(a *asking, token string, fence uint64, sent time.Time) (onefill.Claim, error) {
	flights := writeFlights([]uint64{a.ask.Flight})
	c := &claim{s: s, key: a.key, names: a.names, token: token, fence: fence, flights: flights, said: flights}
	c.spare = max(time.Until(a.ends), s.cfg.TierTimeout/10)
	c.held = lease.NewHeld(c, s.cfg.ClaimTTL, sent, (*claim).lost)
	if !s.keeper.Keep(c.held) {
		return nil, errClosed
	}
	return c, nil
}

// end ends the care for the claim.
func (c *claim) end() {
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
		c.s.giveBack(c.names, c.token)
		return false, err
	}
	stored, err = c.fill(ctx, c.spare, f)
	if err == nil || isFull(err) || !c.s.tasks.Go(func(ctx context.Context) { c.insist(ctx, f) }) {
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
		args := []any{c.token, digits(c.fence), life, envelope, outcome.Milliseconds(), fenceLife.Milliseconds()}
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
	c.end()
	envelope := ""
	if a != nil && a.Status != onefill.StatusClosed && a.Status != onefill.StatusBusy {
		b, err := c.s.values.write(c.key, c.fence, a)
		if err != nil {
			return err
		}
		envelope = string(b)
	}
	_, err := c.s.run(ctx, c.spare, scriptAbandon, c.names.all(), []any{c.token, envelope, outcomeLife.Milliseconds(), fenceLife.Milliseconds()}, nil)
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
	return []any{c.token, digits(c.fence), ttl.Milliseconds(), flights, fenceLife.Milliseconds()}
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

// writeFlights writes flight IDs as 16 hex digits each.
func writeFlights(flights []uint64) string {
	var b strings.Builder
	for _, id := range flights[:min(len(flights), maxFlights)] {
		b.WriteString(senderOf(id))
	}
	return b.String()
}

// readFlights reads what writeFlights has written.
func readFlights(s string) []uint64 {
	var all []uint64
	for part := range slices.Chunk([]byte(s), 16) {
		id, err := strconv.ParseUint(string(part), 16, 64)
		if err != nil || len(part) != 16 {
			return nil
		}
		all = append(all, id)
	}
	return all
}
