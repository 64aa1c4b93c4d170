// Store: a tier in Redis, from its making to its end, and its calls of scripts. The way of a fill stands in claim.go, invalidations in invalidate.go, waiting in
// wait.go, hearing in listen.go.

package l2

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/lease"
	"github.com/onefill/onefill/internal/report"
	"github.com/onefill/onefill/internal/tasks"
)

// Store is a tier in Redis. It serves one mesh or several of one namespace in one process. Its methods are for the mesh; they are safe for concurrent use.
type Store struct {
	cfg    Config
	ttl    string // ClaimTTL in ms
	client redis.UniversalClient
	log    *report.Log
	sender string

	tasks    *tasks.Set
	runner   *lease.Runner
	heard    *lease.Subscription
	keeper   *lease.Keeper[*claim]
	rooms    rooms
	breaker  breaker
	listener listener

	mu      sync.Mutex // guards members and left; the rest is written once, by the first Join, before anything else is called
	members []onefill.TierMember
	left    int // how many have closed; which ones is not known
	joined  atomic.Bool
	closed  atomic.Bool
	space   string // escaped
	values  envelopes
}

// Redis returns a tier in the Redis that client leads to: a server, a Sentinel group or a Cluster, of version 6 or later. The client stays the caller's to close,
// after the mesh. Nothing is sent before a mesh has joined. A nil client, one that reads from replicas, a Ring, or a wrong field of cfg is an error that
// names it.
func Redis(client redis.UniversalClient, cfg Config) (*Store, error) {
	if err := checkClient(client); err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	seal, err := newSeal(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, client: client, log: report.New(cfg.Logger), sender: senderOf(rand.Uint64()), tasks: tasks.New()}
	s.ttl = strconv.FormatInt(cfg.ClaimTTL.Milliseconds(), 10)
	s.values.seal = seal
	s.runner = lease.NewRunner(client, s.tasks, cfg.TierTimeout)
	s.heard = lease.NewSubscription(client, s.tasks)
	s.keeper = lease.NewKeeper(s.tasks, s.renew)
	s.rooms.subscription = s.heard
	s.listener.hears = make(chan struct{})
	return s, nil
}

// Join implements onefill.Tier. The first mesh starts the tier's goroutines: what it sends and hears each second, and what renews claims.
func (s *Store) Join(m onefill.TierMember) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	space := namespace(m.Namespace())
	switch {
	case s.closed.Load():
		return errClosed
	case s.joined.Load() && space != s.space:
		return fmt.Errorf("%w: %q, not %q", errOtherSpace, s.space, space)
	}
	s.members = append(s.members, m)
	if s.joined.Load() {
		return nil
	}
	s.space, s.values.space = space, space
	s.joined.Store(true)
	s.listen()
	return nil
}

// Ready implements onefill.Tier: it asks the tier once and waits until messages of other clusters are heard, for at most TierTimeout. Whether that comes about
// is all the same; only ctx's own end is an error.
func (s *Store) Ready(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, s.cfg.TierTimeout)
	defer cancel()
	s.probe(ctx)
	select {
	case <-s.listener.hears:
	case <-limited.Done():
	}
	return ctx.Err()
}

// probe asks whether the tier is there. A failure is on the log and in State.
func (s *Store) probe(ctx context.Context) {
	_, _ = s.run(ctx, s.cfg.TierTimeout, scriptProbe, []string{probeOf(s.space)}, nil, nil)
}

// State implements onefill.Tier.
func (s *Store) State() string { return s.breaker.state() }

// Close implements onefill.Tier. With the last mesh it gives back the claims that are still held, so that others need not wait for their end, and waits for its
// goroutines (the subscription, what is sent each second, renewals, calls under way), which a client of default options can hold up for some seconds while
// Redis hangs. The Redis client stays open.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.left++
	others := s.left < len(s.members)
	s.mu.Unlock()
	if others {
		return nil
	}
	if !s.closed.Swap(true) {
		s.release(ctx)
	}
	if err := s.tasks.Close(ctx); err != nil {
		return fmt.Errorf("l2: Close: %w", err)
	}
	return nil
}

// release gives back all claims.
func (s *Store) release(ctx context.Context) {
	var calls []lease.Call
	for _, c := range s.keeper.Kept() {
		if s.keeper.Drop(c.held) {
			calls = append(calls, lease.Call{Keys: c.names.all(), Args: []any{c.token, "", 0, fenceMillis}})
		}
	}
	if len(calls) == 0 {
		return
	}
	if _, err := s.runner.RunAll(ctx, 0, scriptAbandon, calls); err != nil {
		s.log.Warn("claims could not be given back", errAttr(err))
	}
}

// run runs a script, or returns errDown without a wait. late is told what came of a call that nobody waited for to its end.
func (s *Store) run(ctx context.Context, bound time.Duration, script *redis.Script, keys []string, args []any, late func(any, error)) (any, error) {
	if s.closed.Load() {
		return nil, errClosed
	}
	began := time.Now()
	probe, err := s.breaker.admit(began)
	if err != nil {
		return nil, err
	}
	reply, err := s.runner.Direct(ctx, bound, script, keys, args, late)
	s.settle(probe, began, judge(ctx, err), err)
	return reply, wrapped(err)
}

// settle tells the breaker, and the log where the tier goes down or comes back.
func (s *Store) settle(probe bool, began time.Time, v verdict, err error) {
	if !s.breaker.settle(probe, began, v) {
		return
	}
	if v == failed {
		s.log.Warn("the tier does not answer: doing without it", errAttr(err))
	} else {
		s.log.Warn("the tier answers again")
	}
}

// judge says what an error of a call means for the tier as a whole. A full Redis answers, and still serves what it has.
func judge(ctx context.Context, err error) verdict {
	switch {
	case err == nil, isFull(err):
		return answered
	case ctx.Err() != nil, errors.Is(err, lease.ErrStopped):
		return silent
	}
	return failed
}

// isFull reports whether Redis refused a write since it has no memory left.
func isFull(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("l2: %w", err)
}

func errAttr(err error) slog.Attr           { return slog.String("error", err.Error()) }
func groupAttr(k onefill.TierKey) slog.Attr { return slog.String("group", k.Group) }
