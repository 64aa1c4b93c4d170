package bench

// BenchmarkHeldLeases: what it costs to hold many locks: Redis's time to renew them, and this process's memory.

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/lock"
)

const (
	heldLeases = 10_000
	leaseTTL   = 3 * time.Second // so that a round of renewals comes each second
	settleIn   = 10              // rounds in which leases taken one after another must have come together
)

// BenchmarkHeldLeases takes 10,000 leases and waits for their renewals: one operation is a round, in which each is renewed once, and comes once in a third of
// the TTL. redis-ms/round is what Redis says that its scripts took; B/lease is how far this process's heap grew for each. ns/op means nothing.
func BenchmarkHeldLeases(b *testing.B) {
	b.Run(fmt.Sprintf("leases=%d", heldLeases), func(b *testing.B) {
		server := redistest.Start(b)
		rounds := make(pipelines, 1)
		rdb, asking := openRedis(b, server.Addr()), openRedis(b, server.Addr())
		rdb.AddHook(rounds)
		client := openLockClient(b, rdb, lock.Config{TTL: leaseTTL})
		before := heap()
		leases := takeLeases(b, client)
		grown := heap() - before
		settle(b, rounds, asking)
		start, done := statOf(b, asking), 0
		for b.Loop() {
			<-rounds
			done++
		}
		end := statOf(b, asking)
		if renewed := end.renewed - start.renewed; renewed < done*heldLeases {
			b.Errorf("%d renewals in %d rounds of %d leases", renewed, done, heldLeases)
		}
		b.ReportMetric(float64((end.took-start.took).Microseconds())/1000/float64(done), "redis-ms/round")
		b.ReportMetric(float64(grown)/heldLeases, "B/lease")
		for _, lease := range leases {
			if err := context.Cause(lease.Context()); err != nil {
				b.Fatalf("a lease ended: %v", err)
			}
		}
		runtime.KeepAlive(leases)
	})
}

// takeLeases takes all leases, a few at a time.
func takeLeases(b *testing.B, client *lock.Client) []*lock.Lease {
	b.Helper()
	leases := make([]*lock.Lease, heldLeases)
	const takers = 8
	var taking sync.WaitGroup
	for taker := range takers {
		taking.Go(func() {
			for i := taker; i < heldLeases; i += takers {
				lease, err := client.Mutex(userKey(i)).Lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				leases[i] = lease
			}
		})
	}
	taking.Wait()
	if b.Failed() {
		b.FailNow()
	}
	return leases
}

// settle waits for a round in which all leases are renewed.
func settle(b *testing.B, rounds pipelines, rdb *redis.Client) {
	b.Helper()
	before := statOf(b, rdb).renewed
	for range settleIn {
		<-rounds
		now := statOf(b, rdb).renewed
		if now-before == heldLeases {
			return
		}
		before = now
	}
	b.Fatalf("in %d rounds there was none in which all leases were renewed", settleIn)
}

// pipelines is a hook of go-redis that tells of each pipeline that has been answered. Renewals are all that go that way here.
type pipelines chan struct{}

func (p pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		err := next(ctx, all)
		if strings.HasPrefix(all[0].Name(), "eval") { // else it is a new connection's greeting
			select {
			case p <- struct{}{}:
			default:
			}
		}
		return err
	}
}

// stat is what Redis says of its commands.
type stat struct {
	renewed int           // how often a script prolonged the life of a key
	took    time.Duration // all scripts together
}

func statOf(b *testing.B, rdb *redis.Client) (s stat) {
	b.Helper()
	info, err := rdb.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, fields, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch name {
		case "cmdstat_pexpire":
			s.renewed = field(b, fields, "calls")
		case "cmdstat_eval", "cmdstat_evalsha":
			s.took += time.Duration(field(b, fields, "usec")) * time.Microsecond
		}
	}
	return s
}

// field returns a number from "calls=1,usec=2".
func field(b *testing.B, fields, name string) int {
	b.Helper()
	for part := range strings.SplitSeq(fields, ",") {
		if value, found := strings.CutPrefix(part, name+"="); found {
			n, err := strconv.Atoi(value)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("no %s in %q", name, fields)
	return 0
}
