// Quickstart shows what onefill does, between real processes on this machine:
//
//	go run ./examples/quickstart
//
// It starts three processes of itself, which form a mesh. 300 callers in them ask for one cold key at the same moment. Then the process that owns another cold
// key is killed, and 100 callers in the survivors ask for that one. It says how often the loader ran and how long callers waited.
//
// How a program uses onefill is in process.go; what is done with the processes in story.go; the flags are below.
package main

import (
	"context"
	"flag"
	"io"
	"os"
	"time"

	"github.com/onefill/onefill/internal/measure"
)

func main() {
	if measure.Role() == processRole {
		os.Exit(live())
	}
	os.Exit(quickstart(os.Args[1:], os.Stdout, os.Stderr))
}

// quickstart runs the command and returns its exit code.
func quickstart(args []string, stdout, stderr io.Writer) int {
	return measure.Run("quickstart", stderr, func(ctx context.Context) error {
		s, err := parse(args, stdout)
		if err != nil {
			return err
		}
		words := stdout
		if s.json {
			words = stderr
		}
		row, err := tell(ctx, words, s)
		if err != nil {
			return err
		}
		if s.json {
			if err := measure.NewReport(row).Write(stdout); err != nil {
				return err
			}
		}
		return row.check()
	})
}

// settings are the flags.
type settings struct {
	processes int
	callers   int
	load      time.Duration
	loadLog   string
	json      bool
}

// The bounds of the flags: what one machine can do.
const (
	maxProcesses = 100
	maxCallers   = 100_000
	maxLoad      = time.Hour
)

func parse(args []string, help io.Writer) (settings, error) {
	var s settings
	flags := flag.NewFlagSet("quickstart", flag.ContinueOnError)
	flags.IntVar(&s.processes, "processes", 3, "how many processes form the mesh, 2 or more")
	flags.IntVar(&s.callers, "callers", 300, "how many callers ask for the first key, spread over the processes")
	flags.DurationVar(&s.load, "load", 450*time.Millisecond, "how long the loader takes")
	flags.StringVar(&s.loadLog, "loadlog", "", "a `file` to which each run of the loader appends a line of JSON when it begins")
	flags.BoolVar(&s.json, "json", false, "print one JSON object on standard output and the story on standard error")
	if err := measure.Parse(flags, help, args); err != nil {
		return s, err
	}
	switch {
	case s.processes < 2 || s.processes > maxProcesses:
		return s, measure.Usagef("-processes is %d: want 2 to %d, since one is killed and others go on", s.processes, maxProcesses)
	case s.callers < 1 || s.callers > maxCallers:
		return s, measure.Usagef("-callers is %d: want 1 to %d", s.callers, maxCallers)
	case s.load < 0 || s.load > maxLoad:
		return s, measure.Usagef("-load is %v: want 0s to %v", s.load, maxLoad)
	}
	log, err := measure.OpenLoadLog(s.loadLog)
	if err != nil {
		return s, measure.Usagef("-loadlog: %v", err)
	}
	return s, log.Close()
}
