package lock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/lock"
)

func TestWhatIsOutOfRangeIsNamed(t *testing.T) {
	c := lock.Local()
	defer func() { _ = c.Close() }()
	ctx := t.Context()
	take := func(l *lock.Lease, err error) error {
		if l != nil {
			t.Error("a lease")
		}
		return err
	}
	nop := func(context.Context) error { return nil }
	once := func(name string, window time.Duration) error {
		ran, err := c.Once(ctx, name, window, nop)
		if ran {
			t.Error("ran")
		}
		return err
	}
	_, _, averageErr := c.Average("").Get(ctx)
	for what, err := range map[string]error{
		"empty name":         take(c.Mutex("").Lock(ctx)),
		"long name":          take(c.Mutex(strings.Repeat("x", 10<<10)).TryLock(ctx)),
		"long name, rw":      take(c.RWMutex(strings.Repeat("x", 10<<10)).RLock(ctx)),
		"short TTL":          take(c.Mutex("m", lock.TTL(99*time.Millisecond)).Lock(ctx)),
		"negative TTL":       take(c.RWMutex("m", lock.TTL(-1)).Lock(ctx)),
		"long TTL":           take(c.RWMutex("m", lock.TTL(25*time.Hour)).TryRLock(ctx)),
		"floor":              take(c.Mutex("m", lock.Floor(1<<53)).Lock(ctx)),
		"no permits":         take(c.Semaphore("s", 0).Acquire(ctx)),
		"negative permits":   take(c.Semaphore("s", -1).TryAcquire(ctx)),
		"no events":          c.Throttle("t", 0, time.Second).Allow(ctx),
		"no period":          c.Throttle("t", 1, 0).Wait(ctx),
		"negative period":    c.Throttle("t", 1, -time.Second).Wait(ctx),
		"empty once":         once("", time.Second),
		"no window":          once("o", 0),
		"negative window":    once("o", -1),
		"empty average":      c.Average("").Add(ctx, 1),
		"empty average, get": averageErr,
		"do":                 c.Mutex("").Do(ctx, func(context.Context, *lock.Lease) error { return nil }),
		"semaphore do":       c.Semaphore("s", 0).Do(ctx, func(context.Context, *lock.Lease) error { return nil }),
	} {
		if err == nil || !strings.HasPrefix(err.Error(), "lock: ") {
			t.Errorf("%s: %v", what, err)
		}
		want(t, err, lock.ErrInvalid)
	}
}

func TestAClientThatCannotHoldALockIsRefused(t *testing.T) {
	var none *redis.Client
	readsReplicas := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, RouteByLatency: true})
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	good := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _, _, _ = readsReplicas.Close(), ring.Close(), good.Close() }()
	for what, try := range map[string]struct {
		client redis.UniversalClient
		config lock.Config
	}{
		"nil":              {nil, lock.Config{}},
		"typed nil":        {none, lock.Config{}},
		"replica reads":    {readsReplicas, lock.Config{}},
		"ring":             {ring, lock.Config{}},
		"braces":           {good, lock.Config{Prefix: "a{b}"}},
		"short TTL":        {good, lock.Config{TTL: time.Millisecond}},
		"negative timeout": {good, lock.Config{Timeout: -1}},
	} {
		if _, err := lock.New(try.client, try.config); err == nil {
			t.Errorf("%s: accepted", what)
		} else {
			want(t, err, lock.ErrInvalid)
		}
	}
}

func TestATokenThatNoLivingLeaseGaveIsRefused(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		other := lock.Local()
		defer func() { _ = other.Close() }()
		ctx := w.t.Context()
		foreign := must(w.t)(other.Mutex("m").Lock(ctx))
		_, err := c.Adopt(ctx, foreign.Token())
		want(w.t, err, lock.ErrNotHeld)

		l := must(w.t)(c.Mutex("m").Lock(ctx))
		token := l.Token()
		want(w.t, l.Release(ctx), nil)
		_, err = c.Adopt(ctx, token)
		want(w.t, err, lock.ErrNotHeld)

		fields := strings.Split(token, ".")
		for _, garbage := range []string{
			"", ".", "garbage", token[1:], token + ".x", strings.Repeat("x", 10<<10), "\x00\xff",
			strings.Replace(token, "mutex", "once", 1), strings.Replace(token, "mutex", "rw", 1),
			strings.Replace(token, fields[5], "x", 1), strings.Join(append(fields[:6:6], ""), "."), "2" + token[1:],
		} {
			_, err := c.Adopt(ctx, garbage)
			want(w.t, err, lock.ErrInvalid)
		}
	})
}

func TestRenewRefusesATTLOutOfRange(t *testing.T) {
	c := lock.Local()
	defer func() { _ = c.Close() }()
	l := must(t)(c.Mutex("m").Lock(t.Context()))
	want(t, l.Renew(t.Context(), time.Millisecond), lock.ErrInvalid)
	want(t, l.Upgrade(t.Context()), lock.ErrInvalid)
	want(t, l.Downgrade(t.Context()), lock.ErrInvalid)
	want(t, l.Check(t.Context()), nil)
}

func TestEverythingSaysSoAfterClose(t *testing.T) {
	c := lock.Local()
	l := must(t)(c.Mutex("held").Lock(t.Context()))
	token := l.Token()
	want(t, c.Close(), nil)
	ctx := t.Context()
	_, lockErr := c.Mutex("m").Lock(ctx)
	_, tryErr := c.RWMutex("m").TryRLock(ctx)
	_, acquireErr := c.Semaphore("m", 1).Acquire(ctx)
	_, onceErr := c.Once(ctx, "m", time.Second, func(context.Context) error { return nil })
	_, _, getErr := c.Average("m").Get(ctx)
	_, adoptErr := c.Adopt(ctx, token)
	for _, err := range []error{
		lockErr, tryErr, acquireErr, onceErr, getErr, adoptErr, l.Check(ctx), l.Release(ctx), c.Average("m").Add(ctx, 1),
		c.Throttle("m", 1, time.Second).Allow(ctx), c.Throttle("m", 1, time.Second).Wait(ctx),
	} {
		want(t, err, lock.ErrClosed)
	}
}
