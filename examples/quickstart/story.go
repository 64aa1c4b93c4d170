// The story: a mesh of processes, a burst of callers, a killed owner, another burst.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/onefill/onefill/internal/measure"
)

const (
	firstKey        = "user:1"
	secondKey       = "user:2"
	survivorCallers = 100
)

// row is what happened, in numbers. loads and wait_… are the first burst's, loads_after_kill the second's.
type row struct {
	Processes       int     `json:"processes"`
	Callers         int     `json:"callers"`
	Loads           int     `json:"loads"`
	Owner           string  `json:"owner"`
	WaitP50         float64 `json:"wait_p50_ms"`
	WaitP99         float64 `json:"wait_p99_ms"`
	Killed          string  `json:"killed"`
	SurvivorCallers int     `json:"survivor_callers"`
	LoadsAfterKill  int     `json:"loads_after_kill"`
	Errors          int     `json:"errors"`
	PIDs            []int   `json:"pids"`

	values []int // how many different values the callers of each burst got
}

// check returns what went otherwise than promised.
func (r *row) check() error {
	var wrong []string
	require := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	require(r.Loads == 1, "%d loads of %s, want 1", r.Loads, firstKey)
	require(r.LoadsAfterKill == 1, "%d loads of %s, want 1", r.LoadsAfterKill, secondKey)
	require(r.Errors == 0, "%d callers got an error", r.Errors)
	for _, n := range r.values {
		require(n == 1, "callers who asked for one key got %d different values", n)
	}
	if wrong != nil {
		return errors.New("check failed: " + strings.Join(wrong, "; "))
	}
	return nil
}

// tell plays the story, says in words what happens, and returns it in numbers.
func tell(ctx context.Context, words io.Writer, s settings) (*row, error) {
	m, err := startMesh(ctx, s)
	if err != nil {
		return nil, err
	}
	defer m.stop()
	t := &story{mesh: m, words: words, row: &row{Processes: s.processes, Callers: s.callers, SurvivorCallers: survivorCallers, PIDs: m.pids()}}
	t.say("%d processes of this program form a mesh:", s.processes)
	for _, p := range m.members {
		t.say("  %s is process %d", p.url, p.PID())
	}
	if err := t.coldKey(s); err != nil {
		return nil, err
	}
	if err := t.killedOwner(); err != nil {
		return nil, err
	}
	return t.row, nil
}

// story is one run of it.
type story struct {
	mesh  *mesh
	words io.Writer
	row   *row
}

func (t *story) say(format string, args ...any) { fmt.Fprintf(t.words, format+"\n", args...) }

// coldKey is the first burst: everyone asks for a key that nobody has.
func (t *story) coldKey(s settings) (err error) {
	if t.row.Owner, err = t.mesh.owner(firstKey); err != nil {
		return err
	}
	t.say("\n%d callers in all of them ask for %q at the same moment. Nobody has it, and the loader takes %v.", s.callers, firstKey, s.load)
	b, err := t.mesh.burst(firstKey, s.callers)
	if err != nil {
		return err
	}
	t.row.Loads = len(b.loadedBy)
	t.row.WaitP50, t.row.WaitP99 = measure.Milliseconds(measure.Percentile(b.Waits, 50)), measure.Milliseconds(measure.Percentile(b.Waits, 99))
	t.say("  %s owns the key, so the others asked it.", t.row.Owner)
	t.note(b)
	return nil
}

// killedOwner is the second burst: the process that everyone would ask is dead, and nobody knows it yet.
func (t *story) killedOwner() (err error) {
	if t.row.Killed, err = t.mesh.owner(secondKey); err != nil {
		return err
	}
	t.say("\nNobody has %q either. %s owns it, and is killed now (SIGKILL).", secondKey, t.row.Killed)
	if err := t.mesh.kill(t.row.Killed); err != nil {
		return err
	}
	t.say("%d callers in the %d others ask for %q at the same moment.", survivorCallers, len(t.mesh.members), secondKey)
	b, err := t.mesh.burst(secondKey, survivorCallers)
	if err != nil {
		return err
	}
	t.row.LoadsAfterKill = len(b.loadedBy)
	t.say("  They found the owner dead and turned to the next in rank.")
	t.note(b)
	return nil
}

// note says what came of a burst and counts what must not be.
func (t *story) note(b burst) {
	t.row.Errors += len(b.Errors)
	if len(b.Values) > 0 {
		t.row.values = append(t.row.values, len(b.Values))
	}
	times := fmt.Sprintf("%d times", len(b.loadedBy))
	if len(b.loadedBy) == 1 {
		times = "once"
	}
	t.say("  The loader ran %s, in %s.", times, strings.Join(b.loadedBy, ", "))
	for value, callers := range b.Values {
		t.say("  %d callers got %q.", callers, value)
	}
	if len(b.Errors) > 0 {
		t.say("  %d callers got an error, the first: %s", len(b.Errors), b.Errors[0])
	}
	wait := func(p float64) time.Duration { return measure.Percentile(b.Waits, p).Round(100 * time.Microsecond) }
	t.say("  Callers waited %v in the middle, %v at the 99th percentile, %v at most.", wait(50), wait(99), wait(100))
}
