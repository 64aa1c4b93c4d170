// One process: its callers, and the loader that they share. It is told what to do by orders, and answers.

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/measure"
)

const processRole = "process"

// order is what a process is to do: "open", then "ask", at any time "loads", and in the end "finish".
type order struct {
	Do string

	Strategy string // for open, as are the next five
	Redis    string
	Number   int // of the process
	Load     time.Duration
	LoadLog  string
	Seed     uint64

	Key     string // for ask, as are the next two
	Callers int
	Start   time.Time
}

// answer is what came of it.
type answer struct {
	Loads []time.Time // when each load began; for loads and finish
	Calls []call      // for finish
}

// call is one caller's.
type call struct {
	Wait  time.Duration // from the moment it asked
	Lag   time.Duration // from the moment another process had loaded the value; negative where the caller did not wait for one
	Value value
	Error string
}

// value is what the loader makes: it says where and when. The moments are wall clock readings, which processes on one machine can compare.
type value struct {
	PID    int
	Loaded time.Time
}

// process is a program that reads through Redis.
type process struct {
	redis   *redis.Client
	get     get
	done    func()
	cluster string
	takes   time.Duration
	log     *measure.LoadLog
	chance  *rand.Rand

	asking sync.WaitGroup
	calls  []call

	mu    sync.Mutex // guards what follows
	loads []time.Time
}

// live carries out orders until there are no more, and returns the exit code.
func live() int {
	p := &process{done: func() {}}
	err := measure.Serve(p.carryOut)
	p.done()
	if err == nil {
		err = p.log.Close()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "stampede: process %d: %v\n", os.Getpid(), err)
		return 1
	}
	return 0
}

func (p *process) carryOut(o order) (answer, error) {
	switch o.Do {
	case "open":
		return answer{}, p.open(o)
	case "ask":
		p.ask(o)
		return answer{}, nil
	case "loads":
		return answer{Loads: p.begun()}, nil
	case "finish":
		p.asking.Wait()
		return answer{Loads: p.begun(), Calls: p.calls}, nil
	}
	return answer{}, fmt.Errorf("no order %q", o.Do)
}

func (p *process) open(o order) error {
	strategy, ok := strategyOf(o.Strategy)
	if !ok {
		return fmt.Errorf("no strategy %q", o.Strategy)
	}
	options, err := redis.ParseURL(o.Redis)
	if err != nil {
		return err
	}
	p.redis = redis.NewClient(options)
	p.cluster, p.takes, p.chance = fmt.Sprint(o.Number), o.Load, rand.New(rand.NewPCG(o.Seed, uint64(o.Number)))
	if p.log, err = measure.OpenLoadLog(o.LoadLog); err != nil {
		return err
	}
	get, done, err := strategy.open(p)
	if err != nil {
		return err
	}
	p.get, p.done = get, done
	return nil
}

// load stands for the expensive query.
func (p *process) load(ctx context.Context, key string) (value, error) {
	p.mu.Lock()
	p.loads = append(p.loads, time.Now())
	p.mu.Unlock()
	if err := p.log.Begin(p.cluster, key, p.takes); err != nil {
		return value{}, err
	}
	if err := pause(ctx, p.takes); err != nil {
		return value{}, err
	}
	return value{os.Getpid(), time.Now()}, nil
}

func (p *process) begun() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]time.Time(nil), p.loads...)
}

// arrival is the time within which all callers arrive.
const arrival = 10 * time.Millisecond

// ask lets the callers ask, and does not wait for them.
func (p *process) ask(o order) {
	p.calls = make([]call, o.Callers)
	for i := range p.calls {
		at := o.Start.Add(time.Duration(p.chance.Int64N(int64(arrival))))
		p.asking.Go(func() {
			time.Sleep(time.Until(at))
			p.calls[i] = p.call(o.Key)
		})
	}
}

func (p *process) call(key string) call {
	ctx, cancel := context.WithTimeout(context.Background(), 2*p.takes+patience)
	defer cancel()
	began := time.Now()
	v, err := p.get(ctx, key)
	now := time.Now()
	if err != nil {
		return call{Wait: now.Sub(began), Lag: -1, Error: err.Error()}
	}
	c := call{Wait: now.Sub(began), Lag: -1, Value: v}
	if v.PID != os.Getpid() && began.Round(0).Before(v.Loaded) { // without the monotonic reading, which v does not have
		c.Lag = now.Round(0).Sub(v.Loaded)
	}
	return c
}
