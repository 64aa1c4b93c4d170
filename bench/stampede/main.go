// Stampede lets many processes ask for one cold key at the same moment, each with a cluster of its own, and says what four ways to share a Redis make of it:
//
//	go run ./bench/stampede -processes 50 -callers 20 -load 450ms,6s,40s
//
// It starts the processes anew for each strategy and load. With -kill-holder it kills the process that loads, in the middle of the load.
//
// The strategies are in strategy.go; what one process does in process.go; what is done with the processes, and what is measured, in run.go; what Redis counts in
// commands.go; the flags are below.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/onefill/onefill/internal/measure"
)

func main() {
	if measure.Role() == processRole {
		os.Exit(live())
	}
	os.Exit(stampede(os.Args[1:], os.Stdout, os.Stderr))
}

// stampede runs the command and returns its exit code.
func stampede(args []string, stdout, stderr io.Writer) int {
	return measure.Run("stampede", stderr, func(ctx context.Context) error {
		s, err := parse(args, stdout)
		if err != nil {
			return err
		}
		server, err := measure.OpenRedis(ctx, s.redis, stderr)
		if err != nil {
			return err
		}
		defer server.Close()
		rows, err := runAll(ctx, s, server, stderr)
		if err != nil {
			return err
		}
		if err := write(stdout, s, rows); err != nil {
			return err
		}
		return check(rows)
	})
}

// settings are the flags.
type settings struct {
	processes  int
	callers    int
	loads      []time.Duration
	seed       uint64
	loadLog    string
	redis      string
	json       bool
	killHolder bool
}

// The bounds of the flags: what one machine can do.
const (
	maxProcesses = 200
	maxCallers   = 1000
	maxLoad      = time.Hour
)

func parse(args []string, help io.Writer) (settings, error) {
	var s settings
	var loads string
	flags := flag.NewFlagSet("stampede", flag.ContinueOnError)
	flags.IntVar(&s.processes, "processes", 10, "how many processes ask, each a cluster of its own")
	flags.IntVar(&s.callers, "callers", 20, "how many callers ask in each of them")
	flags.StringVar(&loads, "load", "450ms", "how long the loader takes; several `durations` with commas between are measured one after another")
	flags.Uint64Var(&s.seed, "seed", 1, "the callers of one seed always arrive at the same moments, within 10 ms")
	flags.StringVar(&s.loadLog, "loadlog", "", "a `file` to which each run of the loader appends a line of JSON when it begins")
	flags.StringVar(&s.redis, "redis", "", "the `URL` of a Redis that nothing else uses; without it one is started")
	flags.BoolVar(&s.killHolder, "kill-holder", false, "kill the process that loads in the middle of the load; its callers are not counted")
	flags.BoolVar(&s.json, "json", false, "print one JSON object on standard output, instead of a table")
	if err := measure.Parse(flags, help, args); err != nil {
		return s, err
	}
	for text := range strings.SplitSeq(loads, ",") {
		load, err := time.ParseDuration(strings.TrimSpace(text))
		if err != nil || load < time.Millisecond || load > maxLoad {
			return s, measure.Usagef("-load has %q: want 1ms to %v", text, maxLoad)
		}
		s.loads = append(s.loads, load)
	}
	switch {
	case s.processes < 2 || s.processes > maxProcesses:
		return s, measure.Usagef("-processes is %d: want 2 to %d", s.processes, maxProcesses)
	case s.callers < 1 || s.callers > maxCallers:
		return s, measure.Usagef("-callers is %d: want 1 to %d", s.callers, maxCallers)
	}
	log, err := measure.OpenLoadLog(s.loadLog)
	if err != nil {
		return s, measure.Usagef("-loadlog: %v", err)
	}
	return s, log.Close()
}

// write prints the rows as a table, or as JSON.
func write(w io.Writer, s settings, rows []*row) error {
	if s.json {
		all := make([]any, len(rows))
		for i, r := range rows {
			all[i] = r
		}
		return measure.NewReport(all...).Write(w)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "strategy\tload ms\tloads\twait p50 ms\tp99\twake lag p50 ms\tp99\tRedis commands\tper waiter and s\terrors\t")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%.0f\t%d\t%.1f\t%.1f\t%.2f\t%.2f\t%d\t%.2f\t%d\t\n", r.Strategy, r.Load, r.Loads, r.WaitP50, r.WaitP99, r.LagP50, r.LagP99,
			r.Commands, r.CommandsPerWaiter, r.Errors)
	}
	return t.Flush()
}

// check returns what went otherwise than onefill promises. The other strategies promise nothing.
func check(rows []*row) error {
	var wrong []string
	for _, r := range rows {
		if r.Strategy == onefillStrategy {
			wrong = append(wrong, r.wrong()...)
		}
	}
	if wrong != nil {
		return errors.New("check failed: " + strings.Join(wrong, "; "))
	}
	return nil
}
