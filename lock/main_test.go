// This file starts the tests, and the children that process_test.go makes of this binary.

package lock_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/lock"
)

// quiet keeps go-redis's own log, which tells of every failed dial, out of the tests' output.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	if what := os.Getenv(childDoes); what != "" {
		runChild(what, os.Getenv(childRedis))
		return
	}
	os.Exit(m.Run())
}

// The environment of a child: what it does, and where its Redis is.
const (
	childDoes  = "ONEFILL_LOCK_CHILD"
	childRedis = "ONEFILL_LOCK_REDIS"
)

const childTTL = time.Second

// runChild takes what it is told to, says so with the fence, and says when it is lost.
func runChild(what, addr string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	c, err := lock.New(rdb, lock.Config{TTL: childTTL})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	if what == "once" {
		_, err = c.Once(ctx, "n", time.Minute, func(context.Context) error { fmt.Println("held 0"); select {} })
		fmt.Println(err)
		return
	}
	l, err := childTakes(c, what)(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held", l.Fence())
	<-l.Context().Done()
	fmt.Println("lost", time.Now().Before(l.Expires()), context.Cause(l.Context()), "/", l.Check(ctx), "/", l.Release(ctx))
}

func childTakes(c *lock.Client, what string) func(context.Context) (*lock.Lease, error) {
	return map[string]func(context.Context) (*lock.Lease, error){
		"mutex": c.Mutex("n").Lock, "reader": c.RWMutex("n").RLock, "writer": c.RWMutex("n").Lock, "permit": c.Semaphore("n", 1).Acquire,
	}[what]
}
