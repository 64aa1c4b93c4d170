// Reading or claiming: one trip to Redis, and what its reply means. What becomes of a claim that was granted stands in fill.go, what happens inside Redis in
// scripts.go.

package l2

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/onefill/onefill"
)

const (
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

// fenceMillis is for how many milliseconds a fence is kept after the last claim, renewal or invalidation of its key: twice the default LoadTimeout. A load that
// takes longer renews it. A fence that is lost costs a load that is under way its place in the tier, no more.
var fenceMillis = strconv.FormatInt((2 * onefill.DefaultLoadTimeout).Milliseconds(), 10)

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
	token := ""
	if !a.ask.NoClaim {
		token = newToken()
	}
	args := []any{token, s.ttl, digits(a.ask.Have), digits(a.ask.Waited), digits(a.ask.Floor), senderOf(a.ask.Flight), fenceMillis}
	seen := s.rooms.seen(a.names.claim)
	raw, err := s.run(ctx, time.Until(a.ends), scriptClaim, a.names.all(), args, func(raw any, err error) {
		if r, bad := parseClaim(raw, err); token != "" && (err != nil || bad == nil && r.state == onefill.ClaimGranted) {
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
	b := make([]byte, 0, 26)
	return string(strconv.AppendUint(strconv.AppendUint(b, rand.Uint64(), 36), rand.Uint64(), 36))
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
	_, _ = s.runner.Run(ctx, scriptAbandon, n.all(), []any{token, "", 0, fenceMillis}, nil) // if that fails, its lease runs out
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
