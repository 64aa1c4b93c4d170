// One run: processes are started, their callers ask for one cold key, the process that loads may be killed, and what happened becomes a row.

package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/measure"
	"github.com/onefill/onefill/l2"
)

// row is what happened, in numbers.
type row struct {
	Strategy string  `json:"strategy"`
	Load     float64 `json:"load_ms"`
	Loads    int     `json:"loads"` // begun, those of a killed process among them
	WaitP50  float64 `json:"wait_p50_ms"`
	WaitP99  float64 `json:"wait_p99_ms"`
	// From the moment the loader had the value in another process, which is just before it was stored, to a waiting caller's return. 0 where nobody waited.
	LagP50   float64 `json:"wake_lag_p50_ms"`
	LagP99   float64 `json:"wake_lag_p99_ms"`
	Commands int     `json:"redis_cmds"` // from the start to the last caller's return
	// Over the whole seconds from one second after the start until the first load is about to end, for each process but one, without the claim's renewals; 0
	// where there is no such second.
	CommandsPerWaiter float64 `json:"redis_cmds_per_waiter_s"`
	Errors            int     `json:"errors"`
	Processes         int     `json:"processes"`
	Callers           int     `json:"callers"` // counted
	Killed            int     `json:"killed"`  // the process's ID, or 0

	values  int           // how many different values callers got
	longest time.Duration // wait
	load    time.Duration

	killedAfter time.Duration // from the start
}

// wrong returns what went otherwise than onefill promises.
func (r *row) wrong() (wrong []string) {
	loads, bound := 1, 2*r.load+patience
	if r.Killed != 0 {
		loads, bound = 2, r.killedAfter+l2.DefaultClaimTTL+r.load+time.Second
	}
	require := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf("load of %v: ", r.load)+fmt.Sprintf(format, args...))
		}
	}
	require(r.Loads == loads, "%d loads, want %d", r.Loads, loads)
	require(r.Errors == 0, "%d callers got an error", r.Errors)
	require(r.values <= 1, "callers got %d different values", r.values)
	require(r.longest <= bound, "a caller waited %v, want at most %v", r.longest, bound)
	return wrong
}

// runAll makes all runs and says on stderr how far it is.
func runAll(ctx context.Context, s settings, server *measure.Redis, stderr io.Writer) ([]*row, error) {
	var rows []*row
	for _, load := range s.loads {
		for _, strategy := range strategies {
			fmt.Fprintf(stderr, "%s: a load of %v, %d callers in each of %d processes\n", strategy.name, load, s.callers, s.processes)
			r := &run{settings: s, strategy: strategy, load: load, server: server, key: fmt.Sprintf("item:%s:%v", strategy.name, load)}
			row, err := r.play(ctx)
			if err != nil {
				return nil, err
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// run is one of them.
type run struct {
	settings
	strategy strategy
	load     time.Duration
	server   *measure.Redis
	key      string

	members     []*measure.Process
	count       *counter
	perWaiter   float64 // commands in a second
	killed      int
	killedAfter time.Duration
	begun       int // loads of the process that was killed
}

// lead is how long before callers ask they are told, so that they ask at the same moment.
const lead = 300 * time.Millisecond

func (r *run) play(ctx context.Context) (_ *row, err error) {
	if r.count, err = newCounter(r.server, r.strategy); err != nil {
		return nil, err
	}
	defer r.count.close()
	if err := r.count.client.Del(ctx, r.key, "lock:"+r.key).Err(); err != nil { // of an earlier run on the user's Redis
		return nil, err
	}
	defer r.stop()
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	before, err := r.count.read(ctx)
	if err != nil {
		return nil, err
	}
	start := time.Now().Add(lead)
	if _, err := all(r.members, func(int) order { return order{Do: "ask", Key: r.key, Callers: r.callers, Start: start} }); err != nil {
		return nil, err
	}
	if err := r.meanwhile(ctx, start); err != nil {
		return nil, err
	}
	answers, err := all(r.members, func(int) order { return order{Do: "finish"} })
	if err != nil {
		return nil, err
	}
	after, err := r.count.read(ctx)
	if err != nil {
		return nil, err
	}
	return r.row(answers, after-before), nil
}

// open starts the processes and sets them up, a few at a time: what a start costs the machine is not to be measured.
func (r *run) open(ctx context.Context) error {
	atOnce := 2 * runtime.NumCPU()
	for from := 0; from < r.processes; from += atOnce {
		for range min(atOnce, r.processes-from) {
			p, err := measure.Start(ctx, processRole)
			if err != nil {
				return err
			}
			r.members = append(r.members, p)
		}
		_, err := all(r.members[from:], func(i int) order {
			return order{Do: "open", Strategy: r.strategy.name, Redis: r.server.URL, Number: from + i, Load: r.load, LoadLog: r.loadLog, Seed: r.seed}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// all gives each process an order, all at once, and returns their answers.
func all(members []*measure.Process, orderOf func(i int) order) ([]answer, error) {
	answers, errs := make([]answer, len(members)), make([]error, len(members))
	var calls sync.WaitGroup
	for i, p := range members {
		calls.Go(func() { answers[i], errs[i] = measure.Call[order, answer](p, orderOf(i)) })
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// stop lets the processes end, all at once.
func (r *run) stop() {
	var stopping sync.WaitGroup
	for _, p := range r.members {
		stopping.Go(func() { _ = p.Stop() }) // what it has to say is on standard error
	}
	stopping.Wait()
}

const (
	unrest = time.Second            // after the start: everyone asks and finds its place
	margin = 200 * time.Millisecond // before the end of a load
)

// meanwhile counts commands while callers wait, and kills the process that loads.
func (r *run) meanwhile(ctx context.Context, start time.Time) error {
	ends := r.load - margin
	if r.killHolder {
		ends = r.load/2 - margin
	}
	if calm := (ends - unrest).Truncate(time.Second); calm > 0 {
		if err := r.countCommands(ctx, start.Add(unrest), calm); err != nil {
			return err
		}
	}
	if !r.killHolder {
		return nil
	}
	return r.kill(ctx, start)
}

// countCommands counts for a time, from a moment on.
func (r *run) countCommands(ctx context.Context, from time.Time, calm time.Duration) error {
	if err := pause(ctx, time.Until(from)); err != nil {
		return err
	}
	before, err := r.count.read(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, time.Until(from.Add(calm))); err != nil {
		return err
	}
	after, err := r.count.read(ctx)
	if err != nil {
		return err
	}
	commands := float64(after - before)
	if r.strategy.name == onefillStrategy {
		commands -= float64(calm) / float64(l2.DefaultClaimTTL/3) // the holder renews its claim
	}
	r.perWaiter = commands / float64(r.processes-1) / calm.Seconds()
	return nil
}

// kill kills the process whose load began first, in the middle of that load.
func (r *run) kill(ctx context.Context, start time.Time) error {
	for {
		answers, err := all(r.members, func(int) order { return order{Do: "loads"} })
		if err != nil {
			return err
		}
		holder, began := firstLoad(answers)
		middle := began.Add(r.load / 2)
		if holder >= 0 && !time.Now().Before(middle) {
			r.killed, r.killedAfter, r.begun = r.members[holder].PID(), time.Since(start), len(answers[holder].Loads)
			r.members[holder].Kill()
			r.members = slices.Delete(r.members, holder, holder+1)
			return nil
		}
		if holder < 0 {
			middle = time.Now().Add(arrival)
		}
		if err := pause(ctx, time.Until(middle)); err != nil {
			return err
		}
	}
}

// firstLoad returns which process's load began first, and when; -1 if nobody's has.
func firstLoad(answers []answer) (holder int, began time.Time) {
	holder = -1
	for i, a := range answers {
		if len(a.Loads) > 0 && (holder < 0 || a.Loads[0].Before(began)) {
			holder, began = i, a.Loads[0]
		}
	}
	return holder, began
}

// row is what all that comes to.
func (r *run) row(answers []answer, commands int) *row {
	row := &row{Strategy: r.strategy.name, Load: measure.Milliseconds(r.load), load: r.load, Loads: r.begun, Commands: commands, Processes: r.processes, Killed: r.killed,
		CommandsPerWaiter: r.perWaiter, killedAfter: r.killedAfter}
	var waits, lags []time.Duration
	values := make(map[value]bool)
	for _, a := range answers {
		row.Loads += len(a.Loads)
		for _, c := range a.Calls {
			row.Callers++
			waits = append(waits, c.Wait)
			if c.Error != "" {
				row.Errors++
				continue
			}
			values[c.Value] = true
			if c.Lag >= 0 {
				lags = append(lags, c.Lag)
			}
		}
	}
	row.values, row.longest = len(values), measure.Percentile(waits, 100)
	row.WaitP50, row.WaitP99 = percentile(waits, 50), percentile(waits, 99)
	row.LagP50, row.LagP99 = percentile(lags, 50), percentile(lags, 99)
	return row
}

func percentile(waits []time.Duration, p float64) float64 {
	return measure.Milliseconds(measure.Percentile(waits, p))
}
