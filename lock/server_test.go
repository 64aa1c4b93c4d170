package lock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/lock"
)

// on returns a client over a real server, closed when the test ends.
func on(t *testing.T, rdb redis.UniversalClient, config lock.Config) *lock.Client {
	t.Helper()
	c, err := lock.New(rdb, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// unavailable checks that every way to a lock says so, at once and without a word about other holders.
func unavailable(t *testing.T, c *lock.Client) {
	t.Helper()
	ctx := context.Background()
	once := func(ctx context.Context) (*lock.Lease, error) {
		_, err := c.Once(ctx, "o", time.Second, func(context.Context) error { return nil })
		return nil, err
	}
	wait := func(ctx context.Context) (*lock.Lease, error) { return nil, c.Throttle("t", 1, time.Second).Wait(ctx) }
	for what, take := range map[string]func(context.Context) (*lock.Lease, error){
		"Lock": c.Mutex("m").Lock, "TryLock": c.Mutex("m").TryLock, "RLock": c.RWMutex("m").RLock, "TryAcquire": c.Semaphore("m", 1).TryAcquire,
		"Once": once, "Wait": wait,
	} {
		began := time.Now()
		_, err := take(ctx)
		if !errors.Is(err, lock.ErrUnavailable) || errors.Is(err, lock.ErrNotAcquired) {
			t.Errorf("%s: %v", what, err)
		}
		if took := time.Since(began); took > 1500*time.Millisecond {
			t.Errorf("%s: took %v", what, took)
		}
	}
}

// Contract: K5
func TestAServerThatIsDownIsUnavailable(t *testing.T) {
	s := redistest.Start(t)
	c := on(t, s.Client(), lock.Config{})
	held := must(t)(c.Mutex("m").Lock(t.Context()))
	s.Kill()
	unavailable(t, on(t, s.Client(), lock.Config{}))
	want(t, held.Release(t.Context()), lock.ErrUnavailable)
}

// Contract: K5
func TestAServerThatHangsIsUnavailableWhateverTheClientsOptions(t *testing.T) {
	s := redistest.Start(t)
	obedient := func(o *redis.Options) { o.ContextTimeoutEnabled = true }
	patient := func(o *redis.Options) { o.ReadTimeout, o.MaxRetries = time.Minute, 10 }
	for _, change := range []func(*redis.Options){obedient, patient} {
		rdb := s.Client(change)
		want(t, rdb.Ping(t.Context()).Err(), nil)
		c, err := lock.New(rdb, lock.Config{Timeout: 250 * time.Millisecond})
		want(t, err, nil)
		s.Pause()
		unavailable(t, c)
		s.Resume()
		want(t, c.Close(), nil)
	}
}

// Contract: K5
func TestAServerThatRefusesIsUnavailable(t *testing.T) {
	secret := redistest.Start(t, "--requirepass", "secret")
	unavailable(t, on(t, secret.Client(), lock.Config{}))
	unavailable(t, on(t, secret.Client(func(o *redis.Options) { o.Password = "wrong" }), lock.Config{}))

	primary := redistest.Start(t)
	replica := redistest.Start(t, "--replicaof", strings.Replace(primary.Addr(), ":", " ", 1))
	unavailable(t, on(t, replica.Client(), lock.Config{}))
}

// Contract: K3, K5
func TestAFullServerRefusesNewLocksAndKeepsOldOnes(t *testing.T) {
	s := redistest.Start(t, "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
	rdb := s.Client()
	c := on(t, rdb, lock.Config{})
	held := must(t)(c.Mutex("held", lock.TTL(300*time.Millisecond)).Lock(t.Context()))
	for _, size := range []int{10 << 10, 1} {
		for i := 0; rdb.Set(t.Context(), fmt.Sprint("filler", size, i), strings.Repeat("x", size), 0).Err() == nil; i++ {
		}
	}
	_, err := c.Mutex("m").Lock(t.Context())
	want(t, err, lock.ErrUnavailable)
	select {
	case <-held.Context().Done():
		t.Fatal(context.Cause(held.Context()))
	case <-time.After(time.Second):
	}
	want(t, held.Check(t.Context()), nil)
	want(t, held.Release(t.Context()), nil)
}

func TestAForeignValueUnderALocksKeyIsAnErrorAndStays(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	c := on(t, rdb, lock.Config{})
	l := must(t)(c.Mutex("m").Lock(t.Context()))
	want(t, l.Release(t.Context()), nil)
	fences, err := rdb.Keys(t.Context(), "lock:*:fence").Result()
	if err != nil || len(fences) != 1 {
		t.Fatal(fences, err)
	}
	holder := strings.Replace(fences[0], "fence", "mutex:holder:m", 1)
	want(t, rdb.LPush(t.Context(), holder, "x").Err(), nil)
	_, err = c.Mutex("m").Lock(t.Context())
	want(t, err, lock.ErrUnavailable)
	want(t, rdb.Del(t.Context(), holder).Err(), nil)
	want(t, rdb.Set(t.Context(), fences[0], "no number", 0).Err(), nil)
	l = must(t)(c.Mutex("m").Lock(t.Context()))
	want(t, l.Release(t.Context()), nil)
}

// Contract: K1, K4
func TestScriptFlushCostsNothingAndFlushallTheLease(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	c := on(t, rdb, lock.Config{})
	m := c.Mutex("m", lock.TTL(300*time.Millisecond))
	l := must(t)(m.Lock(t.Context()))
	want(t, rdb.ScriptFlush(t.Context()).Err(), nil)
	want(t, l.Check(t.Context()), nil)
	want(t, rdb.ScriptFlush(t.Context()).Err(), nil)
	want(t, l.Release(t.Context()), nil)

	l = must(t)(m.Lock(t.Context()))
	want(t, rdb.FlushAll(t.Context()).Err(), nil)
	<-l.Context().Done()
	want(t, context.Cause(l.Context()), lock.ErrLost)
	want(t, l.Release(t.Context()), lock.ErrLost)
	next := must(t)(m.Lock(t.Context()))
	if next.Fence() <= l.Fence() {
		t.Fatalf("fence %d after %d", next.Fence(), l.Fence())
	}
}

// Contract: K3
func TestQuickPairsLeaveNoKeyButTheFenceAndNoCommand(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	c := on(t, rdb, lock.Config{TTL: 300 * time.Millisecond})
	m := c.Mutex("m")
	for range 10_000 {
		l := must(t)(m.Lock(t.Context()))
		want(t, l.Release(t.Context()), nil)
	}
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 1 || !strings.HasSuffix(keys[0], ":fence") {
		t.Fatal(keys, err)
	}
	if ttl, err := rdb.TTL(t.Context(), keys[0]).Result(); err != nil || ttl <= 0 {
		t.Fatal(ttl, err)
	}
	before := commands(t, rdb)
	<-time.After(time.Second) // three TTLs
	if after := commands(t, rdb); after-before > 1 {
		t.Fatalf("%d commands in a second without a lease", after-before)
	}
}

// commands returns how many commands the server has run.
func commands(t *testing.T, rdb *redis.Client) (n int) {
	t.Helper()
	info, err := rdb.Info(t.Context(), "stats").Result()
	want(t, err, nil)
	for line := range strings.Lines(info) {
		if _, err := fmt.Sscanf(line, "total_commands_processed:%d", &n); err == nil {
			return n
		}
	}
	t.Fatal("no count")
	return 0
}

// Contract: K3
func TestAThousandLeasesAreRenewedInAFewCommands(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	c := on(t, rdb, lock.Config{TTL: 3 * time.Second})
	var leases []*lock.Lease
	for i := range 1000 {
		leases = append(leases, must(t)(c.Mutex(fmt.Sprint("m", i)).Lock(t.Context())))
	}
	want(t, rdb.ConfigResetStat(t.Context()).Err(), nil)
	<-time.After(4 * time.Second)
	var runs, usec int
	stats, err := rdb.Info(t.Context(), "commandstats").Result()
	want(t, err, nil)
	for line := range strings.Lines(stats) {
		_, _ = fmt.Sscanf(line, "cmdstat_evalsha:calls=%d,usec=%d", &runs, &usec)
	}
	if runs == 0 || runs > 60 { // four or five rounds of ten
		t.Fatalf("%d runs of the script in 4 s, %d µs", runs, usec)
	}
	t.Logf("%d runs of the script, %d µs", runs, usec)
	for _, l := range leases {
		want(t, l.Context().Err(), nil)
		want(t, l.Release(t.Context()), nil)
	}
}

// Contract: K2
func TestAWaiterWhoseSubscriptionIsKilledIsWokenAllTheSame(t *testing.T) {
	s := redistest.Start(t)
	rdb := s.Client()
	a, b := on(t, rdb, lock.Config{}), on(t, s.Client(), lock.Config{})
	held := must(t)(a.Mutex("m").Lock(t.Context()))
	got := make(chan error, 1)
	go func() {
		l, err := b.Mutex("m").Lock(context.Background())
		if err == nil {
			err = l.Release(context.Background())
		}
		got <- err
	}()
	until(t, func() bool { return rdb.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Val() > 0 })
	began := time.Now()
	want(t, held.Release(t.Context()), nil)
	want(t, <-got, nil)
	if took := time.Since(began); took > time.Second {
		t.Fatalf("woken after %v", took)
	}
}

// until waits for a condition of a real server's.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); <-time.After(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatal("waited 15 s")
}

// Contract: K12
func TestAnEvictionPolicyThatCanDropALockIsWarnedAbout(t *testing.T) {
	for policy, warned := range map[string]bool{"allkeys-lru": true, "volatile-ttl": true, "noeviction": false} {
		s := redistest.Start(t, "--maxmemory-policy", policy)
		var log bytes.Buffer
		c, err := lock.New(s.Client(), lock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		want(t, err, nil)
		l := must(t)(c.Mutex("m").Lock(t.Context()))
		want(t, l.Release(t.Context()), nil)
		want(t, c.Close(), nil) // waits for the look at the policy
		if got := strings.Contains(log.String(), "policy="+policy); got != warned {
			t.Errorf("%s: warned %v: %s", policy, got, log.String())
		}
	}
}

// The ACL in docs/locks.md is enough for everything.
func TestTheDocumentedACLIsEnough(t *testing.T) {
	s := redistest.Start(t)
	page, err := os.ReadFile("../docs/locks.md")
	want(t, err, nil)
	_, rest, found := strings.Cut(string(page), "`on >secret ")
	rules, _, closed := strings.Cut(rest, "`")
	if !found || !closed {
		t.Fatal("docs/locks.md names no ACL")
	}
	command := []any{"ACL", "SETUSER", "locks", "on", ">secret"}
	for rule := range strings.FieldsSeq(rules) {
		command = append(command, rule)
	}
	want(t, s.Client().Do(t.Context(), command...).Err(), nil)
	c := on(t, s.Client(func(o *redis.Options) { o.Username, o.Password = "locks", "secret" }), lock.Config{})
	ctx := t.Context()
	reader := must(t)(c.RWMutex("m").RLock(ctx))
	want(t, reader.Upgrade(ctx), nil)
	want(t, reader.Check(ctx), nil)
	_, err = c.RWMutex("m").Lock(within(t, 100*time.Millisecond))
	want(t, err, lock.ErrNotAcquired)
	want(t, reader.Downgrade(ctx), nil)
	want(t, reader.Release(ctx), nil)
	permit := must(t)(c.Semaphore("s", 1).Acquire(ctx))
	want(t, permit.Release(ctx), nil)
	want(t, c.Throttle("t", 1, time.Second).Wait(ctx), nil)
	want(t, c.Average("a").Add(ctx, 1), nil)
	_, _, err = c.Average("a").Get(ctx)
	want(t, err, nil)
	ran, err := c.Once(ctx, "o", time.Second, func(context.Context) error { return nil })
	if !ran || err != nil {
		t.Fatal(ran, err)
	}
}
