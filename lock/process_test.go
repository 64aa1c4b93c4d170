//go:build unix

// This file tests what only real processes can do: die, and stand still.

package lock_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/lock"
)

// child is a process of this test binary that holds something.
type child struct {
	t      *testing.T
	cmd    *exec.Cmd
	output *bufio.Reader
	fence  uint64
}

func startChild(t *testing.T, s *redistest.Server, what string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), childDoes+"="+what, childRedis+"="+s.Addr())
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	want(t, err, nil)
	c.output = bufio.NewReader(out)
	want(t, c.cmd.Start(), nil)
	t.Cleanup(func() { c.kill() })
	if _, err := fmt.Sscanf(c.line(), "held %d", &c.fence); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *child) line() string {
	c.t.Helper()
	line, err := c.output.ReadString('\n')
	if err != nil && err != io.EOF {
		c.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

func (c *child) signal(s os.Signal) {
	c.t.Helper()
	want(c.t, c.cmd.Process.Signal(s), nil)
}

// late is how much later than promised a loaded machine may be.
const late = 500 * time.Millisecond

// Contract: K3, K6, K8
func TestAKilledHolderIsReplacedWithinItsTTLAndAHalfSecond(t *testing.T) {
	s := redistest.Start(t)
	for holder, next := range map[string]string{"mutex": "mutex", "reader": "writer", "writer": "reader", "permit": "permit"} {
		t.Run(holder, func(t *testing.T) {
			held := startChild(t, s, holder)
			c := on(t, s.Client(), lock.Config{TTL: childTTL})
			got := make(chan *lock.Lease, 1)
			go func() {
				l, _ := childTakes(c, next)(context.Background())
				got <- l
			}()
			select {
			case <-got:
				t.Fatal("taken beside a living holder")
			case <-time.After(2 * childTTL):
			}
			died := time.Now()
			held.kill()
			l := <-got
			if took := time.Since(died); took > childTTL+500*time.Millisecond+late {
				t.Fatalf("replaced after %v", took)
			}
			if l.Fence() <= held.fence {
				t.Fatalf("fence %d after %d", l.Fence(), held.fence)
			}
			want(t, l.Release(t.Context()), nil)
		})
	}
}

// Contract: K10
func TestAKilledRunOfAOnceIsRunAgain(t *testing.T) {
	s := redistest.Start(t)
	held := startChild(t, s, "once")
	c := on(t, s.Client(), lock.Config{})
	held.kill()
	began := time.Now()
	ran, err := c.Once(t.Context(), "n", time.Minute, func(context.Context) error { return nil })
	if !ran || err != nil {
		t.Fatal(ran, err)
	}
	if took := time.Since(began); took > childTTL+500*time.Millisecond+late {
		t.Fatalf("run after %v", took)
	}
}

// Contract: K1, K4
func TestAPausedHolderWakesUpToALostLeaseAndTakesNothingFromItsSuccessor(t *testing.T) {
	s := redistest.Start(t)
	c := on(t, s.Client(), lock.Config{})
	for _, what := range []string{"mutex", "writer", "permit"} {
		t.Run(what, func(t *testing.T) {
			held := startChild(t, s, what)
			held.signal(syscall.SIGSTOP)
			next := must(t)(childTakes(c, what)(t.Context()))
			if next.Fence() <= held.fence {
				t.Fatalf("fence %d after %d", next.Fence(), held.fence)
			}
			held.signal(syscall.SIGCONT)
			if got, wanted := held.line(), fmt.Sprintf("lost false %v / %v / %v", lock.ErrLost, lock.ErrLost, lock.ErrLost); got != wanted {
				t.Fatalf("the paused holder said %q, want %q", got, wanted)
			}
			want(t, next.Check(t.Context()), nil)
			want(t, next.Release(t.Context()), nil)
		})
	}
}

// Contract: K1
func TestAHolderCutOffFromRedisLosesItsLeaseBeforeItEndsThere(t *testing.T) {
	s := redistest.Start(t)
	held := startChild(t, s, "mutex")
	s.Pause()
	line := held.line() // the server is stopped: no answer told it
	s.Resume()
	if wanted := fmt.Sprintf("lost false %v", lock.ErrLost); !strings.HasPrefix(line, wanted) {
		t.Fatalf("the holder said %q, want %q…", line, wanted)
	}
}
