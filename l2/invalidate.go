// Delete and Set in the tier, and how other clusters hear of them.

package l2

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/lease"
)

// Invalidate implements onefill.Tier. One key is one trip, in which Redis tells the clusters itself; many are one pipeline, and one message after it, or more
// where the keys take more than a megabyte. Where some keys could not be dropped the others have been, and the clusters are told of all.
func (s *Store) Invalidate(ctx context.Context, inv *onefill.Invalidation, floor uint64) (uint64, error) {
	if floor = max(floor, inv.Number); floor >= maxNumber {
		return 0, errNumber
	}
	var number uint64
	var err error
	if len(inv.Keys) == 1 {
		number, err = s.invalidateOne(ctx, inv, floor)
	} else if len(inv.Keys) > 0 {
		number, err = s.invalidateMany(ctx, inv, floor)
	}
	for _, m := range s.all() {
		m.Merge(number + 1) // the number of a value that was set
	}
	if number > 0 {
		s.tellSiblings(inv, number)
	}
	return number, err
}

func (s *Store) invalidateOne(ctx context.Context, inv *onefill.Invalidation, floor uint64) (uint64, error) {
	key := onefill.TierKey{Group: inv.Group, Version: inv.Version, Key: inv.Keys[0]}
	var envelope []byte
	var life time.Duration
	if v := inv.Value; v != nil && !v.Final && v.Life >= time.Millisecond {
		var err error
		if envelope, err = s.values.write(key, 0, v); err != nil {
			return 0, err
		}
		life = v.Life
	}
	args := s.invalidation(floor, writeInvalidation(s.sender, inv, inv.Keys), life, envelope)
	reply, err := s.run(ctx, s.cfg.TierTimeout, scriptInvalidate, nameOf(s.space, key).all(), args, nil)
	if err != nil {
		return 0, err
	}
	return parseFence(reply)
}

// invalidation are the arguments of scriptInvalidate.
func (s *Store) invalidation(floor uint64, message string, life time.Duration, envelope []byte) []any {
	return []any{digits(floor), fenceMillis, channelOf(s.space), message, life.Milliseconds(), envelope}
}

func (s *Store) invalidateMany(ctx context.Context, inv *onefill.Invalidation, floor uint64) (highest uint64, err error) {
	calls := make([]lease.Call, len(inv.Keys))
	for i, key := range inv.Keys {
		k := onefill.TierKey{Group: inv.Group, Version: inv.Version, Key: key}
		calls[i] = lease.Call{Keys: nameOf(s.space, k).all(), Args: s.invalidation(floor, "", 0, nil)}
	}
	began := time.Now()
	probe, err := s.breaker.admit(began)
	if err != nil {
		return 0, err
	}
	answers, err := s.runner.RunAll(ctx, 0, scriptInvalidate, calls)
	dropped := 0
	for _, a := range answers {
		var n uint64
		if a.Err == nil {
			n, a.Err = parseFence(a.Reply)
		}
		if a.Err != nil {
			err = a.Err
			continue
		}
		dropped++
		highest = max(highest, n)
	}
	s.settle(probe, began, judge(ctx, err), err)
	if dropped == 0 {
		return 0, wrapped(err)
	}
	if told := s.announce(ctx, inv, highest); err == nil {
		err = told
	} else {
		err = fmt.Errorf("%d of %d keys: %w", len(calls)-dropped, len(calls), err)
	}
	return highest, wrapped(err)
}

// announce tells the clusters of an invalidation of many keys.
func (s *Store) announce(ctx context.Context, inv *onefill.Invalidation, number uint64) error {
	numbered := *inv
	numbered.Number = number
	for rest := inv.Keys; len(rest) > 0; {
		n, size := 0, 0
		for n < len(rest) && (n == 0 || size < maxMessage) {
			size += len(rest[n])
			n++
		}
		message := writeInvalidation(s.sender, &numbered, rest[:n])
		if _, err := s.run(ctx, s.cfg.TierTimeout, scriptPublish, nil, []any{channelOf(s.space), message}, nil); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

func parseFence(reply any) (uint64, error) {
	text, _ := reply.(string)
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("l2: an unexpected fence %q", text)
	}
	return n, nil
}

// all returns the meshes that this tier serves.
func (s *Store) all() []onefill.TierMember {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.members[:len(s.members):len(s.members)]
}

// tell passes on an invalidation of another process.
func (s *Store) tell(inv *onefill.Invalidation) {
	for _, m := range s.all() {
		m.Hear(inv)
	}
}

// tellSiblings passes on an invalidation of one mesh of this process to the others: which one it came from is not known, so all hear it, and hearing it twice
// does no harm.
func (s *Store) tellSiblings(inv *onefill.Invalidation, number uint64) {
	if len(s.all()) < 2 {
		return
	}
	heard := *inv
	heard.Number, heard.Value = number, nil
	s.tell(&heard)
}
