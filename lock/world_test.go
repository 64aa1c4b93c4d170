// This file builds the worlds that the tests of this package run in: fake time with miniredis or with Local, and real servers.

package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/onefill/onefill/lock"
)

// world is a store in fake time that any number of clients share.
type world struct {
	t      *testing.T
	server *miniredis.Miniredis
	local  bool
}

// inFakeTime runs a scenario in a bubble over miniredis.
func inFakeTime(t *testing.T, scenario func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		defer server.Close()
		scenario(&world{t: t, server: server})
	})
}

// inBoth runs a scenario of one client over miniredis and over Local.
func inBoth(t *testing.T, scenario func(w *world)) {
	t.Run("redis", func(t *testing.T) { inFakeTime(t, scenario) })
	t.Run("local", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { scenario(&world{t: t, local: true}) })
	})
}

// client returns a client of the world, and what closes it; a bubble ends only when all are closed.
func (w *world) client() (*lock.Client, func()) {
	w.t.Helper()
	if w.local {
		c := lock.Local()
		return c, func() { _ = c.Close() }
	}
	c, _, closeAll := w.redisClient(lock.Config{})
	return c, closeAll
}

func (w *world) redisClient(config lock.Config) (*lock.Client, *redis.Client, func()) {
	w.t.Helper()
	return w.clientOver(w.rdb(&network{}), config)
}

func (w *world) clientOver(rdb *redis.Client, config lock.Config) (*lock.Client, *redis.Client, func()) {
	w.t.Helper()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := lock.New(rdb, config)
	if err != nil {
		w.t.Fatal(err)
	}
	return c, rdb, func() {
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
		_ = rdb.Close()
	}
}

// rdb returns a Redis client over a network of its own, which repeats a command once when its reply is lost.
func (w *world) rdb(n *network) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:            "127.0.0.1:6379", // unused; a name would be looked up outside the bubble
		Dialer:          func(context.Context, string, string) (net.Conn, error) { return n.dial(w.server.Dial) },
		DialerRetries:   1,
		MaxRetries:      1,
		MinRetryBackoff: -1,
		MaxRetryBackoff: -1,
		// Its set-up holds a mutex while it waits for an answer, and where one waits for a mutex the bubble's time stands still.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

// must returns the lease, or ends the test.
func must(t *testing.T) func(*lock.Lease, error) *lock.Lease {
	return func(l *lock.Lease, err error) *lock.Lease {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
}

// want ends the test unless err is the one wanted, nil included.
func want(t *testing.T, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("got error %v, want %v", err, wanted)
	}
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}
