package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/lock"
)

// Contract: K1, K3, K6, K8, K9, K10, K11
func TestEverythingWorksOnACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	a, b := on(t, cluster.Client(), lock.Config{TTL: time.Second}), on(t, cluster.Client(), lock.Config{TTL: time.Second})
	ctx := t.Context()
	var leases []*lock.Lease
	for i := range 30 {
		name := fmt.Sprintf("n{%d}:{}x}", i)
		held := must(t)(a.Mutex(name).Lock(ctx))
		_, err := b.Mutex(name).TryLock(ctx)
		want(t, err, lock.ErrNotAcquired)
		reader, permit := must(t)(a.RWMutex(name).RLock(ctx)), must(t)(b.Semaphore(name, 1).Acquire(ctx))
		want(t, reader.Upgrade(ctx), nil)
		want(t, reader.Downgrade(ctx), nil)
		leases = append(leases, held, reader, permit)
		want(t, a.Throttle(name, 1, time.Minute).Wait(ctx), nil)
		want(t, b.Throttle(name, 1, time.Minute).Allow(ctx), lock.ErrThrottled)
		ran, err := b.Once(ctx, name, time.Minute, func(context.Context) error { return nil })
		if err != nil || !ran {
			t.Fatal(ran, err)
		}
		want(t, a.Average(name).Add(ctx, 1), nil)
	}
	woken := make(chan error, 1)
	go func() {
		l, err := b.Mutex("n{0}:{}x}").Lock(context.Background())
		if err == nil {
			err = l.Release(context.Background())
		}
		woken <- err
	}()
	<-time.After(3 * time.Second) // three TTLs
	for _, l := range leases {
		want(t, context.Cause(l.Context()), nil)
		want(t, l.Release(ctx), nil)
	}
	want(t, <-woken, nil)
}

// Contract: K3
func TestALeaseOnAClusterBehindAPlainClientIsRenewed(t *testing.T) {
	cluster := redistest.StartCluster(t)
	rdb := cluster.Servers[0].Client()
	c := on(t, rdb, lock.Config{TTL: time.Second})
	var leases []*lock.Lease
	for i := 0; len(leases) < 3; i++ { // some names are this server's
		l, err := c.Mutex(fmt.Sprint("m", i)).Lock(t.Context())
		var elsewhere redis.Error
		if errors.As(err, &elsewhere) {
			continue
		}
		leases = append(leases, must(t)(l, err))
	}
	<-time.After(2 * time.Second)
	for _, l := range leases {
		want(t, context.Cause(l.Context()), nil)
	}
}
