// This file is the store in Redis: which script answers which question, with which keys. The scripts are in scripts.go.

package lock

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/lease"
	"github.com/onefill/onefill/internal/tasks"
)

// redisStore keeps leases in Redis.
type redisStore struct {
	client       redis.UniversalClient
	runner       *lease.Runner
	timeout      time.Duration
	subscription *lease.Subscription
	bySlot       atomic.Bool // scripts must keep to one slot: a Cluster, also when it hides behind a plain client
}

func newRedisStore(client redis.UniversalClient, set *tasks.Set, timeout time.Duration) *redisStore {
	s := &redisStore{
		client:       client,
		runner:       lease.NewRunner(client, set, timeout),
		timeout:      timeout,
		subscription: lease.NewSubscription(client, set),
	}
	_, cluster := client.(*redis.ClusterClient)
	s.bySlot.Store(cluster)
	return s
}

// checkClient refuses the clients that cannot hold a lock, and says why.
func checkClient(client redis.UniversalClient) error {
	why := ""
	switch c := client.(type) {
	case nil:
		why = "nil"
	case *redis.Client:
		if c == nil {
			why = "nil"
		}
	case *redis.ClusterClient:
		if c == nil {
			why = "nil"
		} else if c.Options().ReadOnly {
			why = "reads from replicas (ReadOnly, RouteByLatency or RouteRandomly)"
		}
	case *redis.Ring:
		why = "a Ring moves names to another server when one is down, and with them who holds what"
	}
	if why != "" {
		return fmt.Errorf("%w: Redis client: %s", ErrInvalid, why)
	}
	return nil
}

// warnOfEviction logs a warning where memory pressure can drop a lease that is held. Servers that do not tell are given the benefit of the doubt.
func (s *redisStore) warnOfEviction(ctx context.Context, logger *slog.Logger) {
	info, err := s.client.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	for line := range strings.Lines(info) {
		policy, found := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:")
		if found && policy != "noeviction" {
			logger.Warn("lock: Redis may evict a lock that is held: use maxmemory-policy noeviction", "policy", policy)
		}
	}
}

func (s *redisStore) take(ctx context.Context, a ask) (answer, error) {
	r := a.room
	var script *redis.Script
	var keys []string
	switch a.op {
	case opMutex:
		script, keys = scriptMutex, []string{r.holder(), r.fence(), r.waiters()}
	case opOnce:
		script, keys = scriptMutex, []string{r.holder(), r.fence(), r.waiters(), r.done()}
	case opWrite:
		script, keys = scriptWrite, []string{r.holder(), r.fence(), r.waiters(), r.sharers(), r.intent()}
	case opRead:
		script, keys = scriptRead, []string{r.holder(), r.fence(), r.waiters(), r.sharers(), r.intent(), r.upgrade()}
	case opPermit:
		script, keys = scriptPermit, []string{r.sharers(), r.fence(), r.waiters()}
	case opUpgrade:
		script, keys = scriptUpgrade, []string{r.holder(), r.fence(), r.waiters(), r.sharers(), r.upgrade()}
	}
	waits := "0"
	if a.waits {
		waits = "1"
	}
	args := []any{a.token, a.ttl.Milliseconds(), strconv.FormatUint(a.floor, 10), waits, a.n}
	if a.op == opUpgrade { // given up half-way it stays a lease, which the holder renews or releases
		return parseAnswer(s.runner.Run(ctx, script, keys, args, nil))
	}
	return parseAnswer(s.runner.Run(ctx, script, keys, args, func(reply any, err error) {
		if got, err := parseAnswer(reply, err); err == nil && got.state != stateGranted {
			return
		}
		// Nobody waits for this lease any more, and it was granted or may have been.
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), defaultTimeout)
		defer cancel()
		_, _ = s.leave(undo, holding{room: r, token: a.token})
	}))
}

// parseAnswer reads what a taking script returned: state, fence, ms left.
func parseAnswer(reply any, err error) (answer, error) {
	if err != nil {
		return answer{}, err
	}
	fields, ok := reply.([]any)
	if !ok || len(fields) != 3 {
		return answer{}, fmt.Errorf("unexpected reply %T", reply)
	}
	code, _ := fields[0].(int64)
	text, _ := fields[1].(string)
	left, _ := fields[2].(int64)
	fence, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return answer{}, fmt.Errorf("unexpected fence %q", text)
	}
	return answer{state: state(code), fence: fence, left: time.Duration(left) * time.Millisecond}, nil
}

// chunk is how many leases one run of the renewing script renews, so that no other client waits long behind it.
const chunk = 100

func (s *redisStore) renew(ctx context.Context, bound time.Duration, all []holding) ([]bool, error) {
	bySlot := s.bySlot.Load()
	calls, order := renewals(all, bySlot)
	answers, err := s.runner.RunAll(ctx, bound, scriptRenew, calls)
	if err != nil {
		return nil, err
	}
	kept := make([]bool, len(all))
	next := 0
	for i, a := range answers {
		if redis.HasErrorPrefix(a.Err, "CROSSSLOT") && !bySlot {
			s.bySlot.Store(true)
			return s.renew(ctx, bound, all)
		}
		flags, ok := a.Reply.([]any)
		if n := len(calls[i].Args) / 2; a.Err == nil && (!ok || len(flags) != n) {
			return nil, fmt.Errorf("unexpected reply %T", a.Reply)
		}
		if a.Err != nil {
			return nil, a.Err
		}
		for _, flag := range flags {
			kept[order[next]] = flag == int64(1)
			next++
		}
	}
	return kept, nil
}

// renewals packs leases into runs of the renewing script, those of one bucket together where a run must keep to one slot. order tells which lease each
// answer is for.
func renewals(all []holding, bySlot bool) (calls []lease.Call, order []int) {
	var members [][]int
	open := make(map[int]int) // the members that take more, by bucket
	for i, h := range all {
		bucket := 0
		if bySlot {
			bucket = h.room.bucket
		}
		n, ok := open[bucket]
		if !ok || len(members[n]) == chunk {
			n = len(members)
			members = append(members, nil)
			open[bucket] = n
		}
		members[n] = append(members[n], i)
	}
	for _, m := range members {
		calls = append(calls, renewal(all, m))
		order = append(order, m...)
	}
	return calls, order
}

// renewal is one run of the renewing script, for some of the leases.
func renewal(all []holding, members []int) lease.Call {
	n := len(members)
	c := lease.Call{Keys: make([]string, 2*n), Args: make([]any, 2*n)}
	for i, m := range members {
		h := all[m]
		c.Keys[i], c.Keys[n+i] = h.room.holder(), h.room.sharers()
		c.Args[i], c.Args[n+i] = h.token, h.ttl.Milliseconds()
	}
	return c
}

func (s *redisStore) leave(ctx context.Context, h holding) (bool, error) {
	r := h.room
	reply, err := s.runner.Direct(ctx, s.timeout, scriptLeave, []string{r.holder(), r.waiters(), r.sharers()}, []any{h.token, r.wake()}, nil)
	return reply == int64(1), err
}

func (s *redisStore) withdraw(ctx context.Context, h holding) error {
	r := h.room
	_, err := s.yes(ctx, scriptWithdraw, []string{r.intent(), r.upgrade(), r.waiters()}, h.token, r.wake())
	return err
}

func (s *redisStore) downgrade(ctx context.Context, h holding) (bool, error) {
	r := h.room
	return s.yes(ctx, scriptDowngrade, []string{r.holder(), r.sharers(), r.waiters()}, h.token, h.ttl.Milliseconds(), r.wake())
}

func (s *redisStore) adopt(ctx context.Context, h holding, from string) (bool, error) {
	return s.yes(ctx, scriptAdopt, []string{h.room.holder(), h.room.sharers()}, h.token, h.ttl.Milliseconds(), from)
}

func (s *redisStore) settle(ctx context.Context, h holding, window time.Duration) (bool, error) {
	r := h.room
	return s.yes(ctx, scriptSettle, []string{r.holder(), r.done(), r.waiters()}, h.token, max(1, window.Milliseconds()), r.wake())
}

// yes runs a script that answers 1 or 0.
func (s *redisStore) yes(ctx context.Context, script *redis.Script, keys []string, args ...any) (bool, error) {
	reply, err := s.runner.Run(ctx, script, keys, args, nil)
	return reply == int64(1), err
}

func (s *redisStore) spend(ctx context.Context, r room, n int, per time.Duration) (time.Duration, error) {
	reply, err := s.runner.Run(ctx, scriptSpend, []string{r.value()}, []any{n, per.Microseconds()}, nil)
	if err != nil {
		return 0, err
	}
	text, _ := reply.(string)
	wait, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("unexpected reply %v", reply)
	}
	return time.Duration(wait) * time.Microsecond, nil
}

func (s *redisStore) add(ctx context.Context, r room, x float64) error {
	_, err := s.yes(ctx, scriptAdd, []string{r.value()}, strconv.FormatFloat(x, 'f', -1, 64), averageKept.Milliseconds())
	return err
}

func (s *redisStore) mean(ctx context.Context, r room) (float64, int64, error) {
	reply, err := s.runner.Run(ctx, scriptMean, []string{r.value()}, nil, nil)
	if err != nil {
		return 0, 0, err
	}
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return 0, 0, fmt.Errorf("unexpected reply %T", reply)
	}
	if fields[0] == nil {
		return 0, 0, nil
	}
	first, _ := fields[0].(string)
	second, _ := fields[1].(string)
	count, err := strconv.ParseInt(first, 10, 64)
	if err != nil || count < 1 {
		return 0, 0, fmt.Errorf("unexpected count %q", first)
	}
	total, err := strconv.ParseFloat(second, 64)
	if err != nil {
		return 0, 0, fmt.Errorf("unexpected total %q", second)
	}
	return total / float64(count), count, nil
}

func (s *redisStore) listen(r room) (<-chan struct{}, func()) { return s.subscription.Listen(r.wake()) }
