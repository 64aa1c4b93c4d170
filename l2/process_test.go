//go:build unix

// Real processes, each a cluster of its own, that are stopped and killed while they load.

package l2_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/l2"
)

// childRedis is set in the environment of a child process: the server's address.
const childRedis = "ONEFILL_TEST_CHILD_REDIS"

func TestMain(m *testing.M) {
	if addr := os.Getenv(childRedis); addr != "" {
		if err := child(addr); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// child is a cluster of one process: it reads a key, says when its loader begins and what it got, and its loader ends with the next line of its input. Then it
// stays until its input ends.
func child(addr string) error {
	client := redis.NewClient(&redis.Options{Addr: addr})
	tier, err := l2.Redis(client, l2.Config{ClaimTTL: childTTL, TierTimeout: 5 * time.Second})
	if err != nil {
		return err
	}
	m, err := onefill.New(onefill.Config{Namespace: "test", Tier: tier})
	if err != nil {
		return err
	}
	in := bufio.NewScanner(os.Stdin)
	g, err := onefill.NewGroup(m, "users", func(context.Context, string) (string, error) {
		fmt.Println("loading")
		in.Scan()
		return in.Text(), nil
	})
	if err != nil {
		return err
	}
	v, err := g.Get(context.Background(), "42")
	fmt.Println("got", v, err)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

const childTTL = time.Second

// process is a child.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startChild(t *testing.T, server *redistest.Server) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), childRedis+"="+server.Addr())
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

// says waits for the next line of the child's output and wants it to begin with a text.
func (p *process) says(want string) {
	p.t.Helper()
	if !p.out.Scan() || !strings.HasPrefix(p.out.Text(), want) {
		p.t.Fatalf("a child says %q, want %q", p.out.Text(), want)
	}
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// Contract: L5
func TestKilledHolderCostsOneMoreLoadWithinTheLease(t *testing.T) {
	server := redistest.Start(t)
	holder := startChild(t, server)
	holder.says("loading")
	w := inRealTime(t, server)
	var loads atomic.Int64
	var began time.Time
	load := func(context.Context, string) (string, error) {
		if loads.Add(1) == 1 {
			began = time.Now()
		}
		return "x", nil
	}
	var groups []*onefill.Group[string]
	for range 20 {
		groups = append(groups, group(t, w.cluster(), load))
	}
	var all sync.WaitGroup
	for _, g := range groups {
		all.Go(func() {
			if v, err := g.Get(context.Background(), "42"); v != "x" || err != nil {
				t.Errorf("got %q, %v", v, err)
			}
		})
	}
	eventually(t, "all clusters to wait", func() bool {
		return w.client.PubSubNumSub(context.Background(), w.named('l')).Val()[w.named('l')] == 20
	})
	holder.signal(syscall.SIGKILL)
	killed := time.Now()
	all.Wait()
	if n := loads.Load(); n != 1 {
		t.Fatalf("%d more loads, want 1", n)
	}
	if took := began.Sub(killed); took > childTTL+500*time.Millisecond {
		t.Fatalf("replaced after %v", took)
	}
}

// Contract: L6
func TestHolderThatWasStoppedStoresNothingWhenItWakes(t *testing.T) {
	server := redistest.Start(t)
	holder := startChild(t, server)
	holder.says("loading")
	holder.signal(syscall.SIGSTOP)
	w := inRealTime(t, server)
	g := group(t, w.cluster(), func(context.Context, string) (string, error) { return "successor's", nil })
	if v, err := g.Get(t.Context(), "42"); v != "successor's" || err != nil {
		t.Fatalf("got %q, %v", v, err)
	}
	if _, err := io.WriteString(holder.in, "late\n"); err != nil {
		t.Fatal(err)
	}
	holder.signal(syscall.SIGCONT)
	holder.says("got late <nil>") // its own callers have what it loaded
	tier, _ := w.process()
	reply := claimKey(t, tier, onefill.TierKey{Group: "users", Key: "42"}, onefill.ClaimAsk{Flight: 1}, onefill.ClaimValue)
	if reply.Value.Data != "successor's" {
		t.Fatalf("the tier has %q", reply.Value.Data)
	}
}

// Contract: L2, L4
func TestValueOfAnotherProcessIsTakenWhenItLands(t *testing.T) {
	server := redistest.Start(t)
	holder := startChild(t, server)
	holder.says("loading")
	var waiting []*process
	for range 3 {
		waiting = append(waiting, startChild(t, server))
	}
	w := inRealTime(t, server)
	eventually(t, "all to wait", func() bool {
		return w.client.PubSubNumSub(context.Background(), w.named('l')).Val()[w.named('l')] == 3
	})
	if _, err := io.WriteString(holder.in, "landed\n"); err != nil {
		t.Fatal(err)
	}
	for _, p := range append(waiting, holder) {
		p.says("got landed <nil>")
	}
}
