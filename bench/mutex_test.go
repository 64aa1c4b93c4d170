package bench

// BenchmarkMutex: what a lock in Redis costs when nobody else wants it, and how soon the next one has it when others wait.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/onefill/onefill/internal/measure"
	"github.com/onefill/onefill/internal/redistest"
)

// A locker is a contender that locks. open makes a client of its own, with its own connections, as a process would have it, and returns how to take the one
// mutex that all contend for. It waits as long as it must.
type locker struct {
	name string
	open func(b *testing.B, addr string) lockFunc
}

type lockFunc func(ctx context.Context) (unlock func() error, err error)

var lockers = []locker{
	{"onefill", openOnefillLock},
	{"redislock", openRedislock},
	{"redsync", openRedsync},
	{"rueidislock", openRueidislock},
}

const mutexName = "nightly"

const (
	holdFor = 5 * time.Millisecond  // a holder's work where others wait
	restFor = 20 * time.Millisecond // at most, by chance, before it stands in line again; else those that poll would all poll at the same moments
)

// BenchmarkMutex with one contender locks and unlocks. With 16, each with a client of its own, one operation is one hand-over to another contender, with the
// holder's work of 5 ms. handover is the time from the call of unlock to the return of the next lock: with one contender, its own.
func BenchmarkMutex(b *testing.B) {
	for _, l := range lockers {
		b.Run(l.name, func(b *testing.B) {
			for _, contenders := range []int{1, 16} {
				b.Run(fmt.Sprintf("contenders=%d", contenders), func(b *testing.B) {
					server := redistest.Start(b)
					locks := make([]lockFunc, contenders)
					for i := range locks {
						locks[i] = l.open(b, server.Addr())
						if err := tryOut(b.Context(), locks[i]); err != nil {
							b.Fatal(err)
						}
					}
					var waits []time.Duration
					if contenders == 1 {
						waits = measureAlone(b, locks[0])
					} else {
						waits = measureHandover(b, locks)
					}
					b.ReportMetric(microseconds(waits, 50), "handover-p50-us")
					b.ReportMetric(microseconds(waits, 99), "handover-p99-us")
				})
			}
		})
	}
}

// tryOut makes a client's connections.
func tryOut(ctx context.Context, lock lockFunc) error {
	for range 20 {
		unlock, err := lock(ctx)
		if err != nil {
			return err
		}
		if err := unlock(); err != nil {
			return err
		}
	}
	return nil
}

func measureAlone(b *testing.B, lock lockFunc) (waits []time.Duration) {
	b.ReportAllocs()
	released := time.Now()
	for b.Loop() {
		unlock, err := lock(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		now := time.Now()
		waits = append(waits, now.Sub(released))
		released = now
		if err := unlock(); err != nil {
			b.Fatal(err)
		}
	}
	return waits
}

func measureHandover(b *testing.B, locks []lockFunc) (waits []time.Duration) {
	ctx, stop := context.WithCancel(b.Context())
	l := &line{handed: make(chan time.Duration), taken: make(chan struct{})}
	var contending sync.WaitGroup
	for _, lock := range locks {
		contending.Go(func() {
			if err := l.contend(ctx, lock); err != nil {
				b.Error(err)
				stop()
			}
		})
	}
	next := func() {
		select {
		case took := <-l.handed:
			waits = append(waits, took)
		case <-ctx.Done():
		}
	}
	for range len(locks) { // until everyone stands in line
		next()
	}
	waits = nil
	for b.Loop() {
		next()
	}
	stop()
	contending.Wait()
	return waits
}

// line is what contenders know of each other.
type line struct {
	handed chan time.Duration // a hand-over took this long

	mu       sync.Mutex // guards what follows
	released time.Time
	taken    chan struct{} // closed by the next holder
}

// contend takes the lock, works, and hands it over, again and again. It stands back until another has the lock: who releases a lock of a kind that polls
// would otherwise have it again before the others look.
func (l *line) contend(ctx context.Context, lock lockFunc) error {
	for {
		time.Sleep(rand.N(restFor))
		unlock, err := lock(ctx)
		if ctx.Err() != nil {
			if err == nil {
				_ = unlock()
			}
			return nil
		}
		if err != nil {
			return err
		}
		took, taken := l.take(time.Now())
		select {
		case l.handed <- took:
		case <-ctx.Done():
		}
		time.Sleep(holdFor) // the work
		l.release(time.Now())
		if err := unlock(); err != nil {
			return err
		}
		select {
		case <-taken:
		case <-ctx.Done():
		}
	}
}

// take tells the holder before that it may stand in line again.
func (l *line) take(now time.Time) (took time.Duration, taken <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.taken)
	l.taken = make(chan struct{})
	return now.Sub(l.released), l.taken
}

func (l *line) release(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.released = now
}

func microseconds(waits []time.Duration, p float64) float64 {
	return float64(measure.Percentile(waits, p)) / float64(time.Microsecond)
}
