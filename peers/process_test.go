//go:build unix

// Tests with real processes on loopback: this test binary, started again as a member of a pool, which obeys commands on its standard input. They are killed,
// stopped and counted from outside.

package peers_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

func TestMain(m *testing.M) {
	if self := os.Getenv("ONEFILL_TEST_MEMBER"); self != "" {
		if err := (&worker{self: self, silence: os.Getenv("ONEFILL_TEST_SILENCE"), members: strings.Fields(os.Getenv("ONEFILL_TEST_MEMBERS"))}).run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// PeerSilence of processes: long enough for a busy machine where nobody is to be silent, short where somebody is.
const (
	patient   = 10 * time.Second
	impatient = time.Second
)

// worker is a process's inside.
type worker struct {
	self    string
	silence string
	members []string
	pool    *peers.Pool
	group   *onefill.Group[string]
	mu      sync.Mutex // guards writing to standard output
}

func (w *worker) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Printf(format+"\n", args...)
}

func (w *worker) run() error {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	silence, err := time.ParseDuration(w.silence)
	if err != nil {
		return err
	}
	if w.pool, err = peers.NewPool(w.self, peers.Static(w.members...), peers.Config{PeerSilence: silence}); err != nil {
		return err
	}
	mesh, err := onefill.New(onefill.Config{Namespace: "test", Peers: w.pool})
	if err != nil {
		return err
	}
	if w.group, err = onefill.NewGroup(mesh, group, w.load, onefill.HotTTL(0)); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- w.pool.Serve(l) }()
	w.say("ready")
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		w.obey(strings.Fields(commands.Text()))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = mesh.Close(ctx)
	<-served
	return err
}

// load takes as many milliseconds as the key says before its colon.
func (w *worker) load(ctx context.Context, key string) (string, error) {
	w.say("load %s", key)
	ms, _, _ := strings.Cut(key, ":")
	n, _ := strconv.Atoi(ms)
	select {
	case <-time.After(time.Duration(n) * time.Millisecond):
		return "value of " + key, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

func (w *worker) obey(command []string) {
	switch command[0] {
	case "get": // times key…
		times, _ := strconv.Atoi(command[1])
		go w.get(times, command[2:])
	case "await": // ID state
		go w.await(command[1], command[2])
	case "descriptors":
		open, _ := os.ReadDir("/proc/self/fd")
		w.say("descriptors %d", len(open))
	}
}

// get gets each key that many times, all at once, and says how many failed and how long the slowest took.
func (w *worker) get(times int, keys []string) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	failed, slowest := 0, time.Duration(0)
	for _, key := range keys {
		for range times {
			wait.Add(1)
			go func() {
				defer wait.Done()
				began := time.Now()
				v, err := w.group.Get(context.Background(), key)
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, time.Since(began))
				if err != nil || v != "value of "+key {
					failed++
				}
			}()
		}
	}
	wait.Wait()
	w.say("got %d %d", failed, slowest.Milliseconds())
}

// await says so once this process believes that of the member.
func (w *worker) await(id, state string) {
	began := time.Now()
	for range time.Tick(5 * time.Millisecond) {
		for _, s := range w.pool.States() {
			if s.ID == id && s.State == state {
				w.say("await %d", time.Since(began).Milliseconds())
				return
			}
		}
	}
}

// process is a worker from outside.
type process struct {
	t   *testing.T
	url string
	cmd *exec.Cmd
	in  io.WriteCloser

	answers chan string // lines that answer a command
	ready   chan struct{}
	mu      sync.Mutex // guards loads
	loads   []string
}

// startProcesses starts n processes of one pool and waits until all listen.
func startProcesses(t *testing.T, n int, silence time.Duration) []*process {
	t.Helper()
	var listeners []*os.File
	var all []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		file, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, "http://"+l.Addr().String())
		listeners = append(listeners, file)
		l.Close() // the file keeps it open until the process has it
	}
	var started []*process
	for i, file := range listeners {
		started = append(started, startProcess(t, all[i], all, file, silence))
		file.Close()
	}
	for _, p := range started {
		<-p.ready
	}
	return started
}

func startProcess(t *testing.T, self string, all []string, listener *os.File, silence time.Duration) *process {
	t.Helper()
	p := &process{t: t, url: self, cmd: exec.Command(os.Args[0]), answers: make(chan string, 100), ready: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "ONEFILL_TEST_MEMBER="+self, "ONEFILL_TEST_SILENCE="+silence.String(), "ONEFILL_TEST_MEMBERS="+strings.Join(all, " "))
	p.cmd.ExtraFiles = []*os.File{listener}
	p.cmd.Stderr = io.Discard
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(out)
	}()
	t.Cleanup(func() {
		p.in.Close()
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		_ = p.cmd.Process.Kill()
		<-read
		_ = p.cmd.Wait()
	})
	return p
}

// read takes what the process says.
func (p *process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		switch word, rest, _ := strings.Cut(lines.Text(), " "); word {
		case "ready":
			close(p.ready)
		case "load":
			p.mu.Lock()
			p.loads = append(p.loads, rest)
			p.mu.Unlock()
		default:
			p.answers <- rest
		}
	}
	close(p.answers)
}

func (p *process) send(format string, args ...any) {
	if _, err := fmt.Fprintf(p.in, format+"\n", args...); err != nil {
		p.t.Error(err)
	}
}

// answer waits for the answer to a command, which is numbers.
func (p *process) answer() (numbers []int) {
	line, ok := <-p.answers
	if !ok {
		p.t.Fatalf("%s has ended", p.url)
	}
	for _, field := range strings.Fields(line) {
		n, err := strconv.Atoi(field)
		if err != nil {
			p.t.Fatalf("%s says %q", p.url, line)
		}
		numbers = append(numbers, n)
	}
	return numbers
}

// got waits for the answer to a get, fails the test if anything failed, and returns how long the slowest took.
func (p *process) got() time.Duration {
	p.t.Helper()
	numbers := p.answer()
	if numbers[0] > 0 {
		p.t.Errorf("%s: %d Gets failed", p.url, numbers[0])
	}
	return time.Duration(numbers[1]) * time.Millisecond
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Error(err)
	}
}

// awaitStop waits until all of the process has stopped: the signal takes its time. Where there is no /proc it hopes for the best.
func (p *process) awaitStop() {
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil || strings.Contains(string(stat), ") T ") {
			return
		}
	}
}

// allLoads returns the keys that the process has loaded, in order. It asks the process for something first: what it said before has been read by then.
func (p *process) allLoads() []string {
	p.send("descriptors")
	p.answer()
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.loads)
}

// loadsOf returns who has loaded key.
func loadsOf(all []*process, key string) (at []string) {
	for _, p := range all {
		for _, loaded := range p.allLoads() {
			if loaded == key {
				at = append(at, p.url)
			}
		}
	}
	return at
}

// processKeys returns n keys with loads of that many milliseconds that owner owns; word makes them differ from others.
func processKeys(all []*process, owner *process, ms int, word string, n int) (keys []string) {
	var members []string
	for _, p := range all {
		members = append(members, p.url)
	}
	guest, err := peers.NewPool("", peers.Static(members...), peers.Config{Guest: true})
	if err != nil {
		panic(err)
	}
	for i := 0; len(keys) < n; i++ {
		if key := fmt.Sprintf("%d:%s:%d", ms, word, i); guest.Owner(group, key) == owner.url {
			keys = append(keys, key)
		}
	}
	return keys
}

// Contract: P3
func TestKilledOwnerCostsOneLoadPerKey(t *testing.T) {
	all := startProcesses(t, 5, patient)
	owner, survivors := all[4], all[:4]
	for _, p := range survivors { // all have connections to the owner
		p.send("get 1 %s", processKeys(all, owner, 0, "warm", 1)[0])
		p.got()
	}
	keys := processKeys(all, owner, 200, "cold", 10)
	owner.signal(syscall.SIGKILL)
	_, _ = owner.cmd.Process.Wait()
	for _, p := range survivors {
		p.send("get 25 %s", strings.Join(keys, " "))
	}
	for _, p := range survivors {
		p.got()
	}
	for _, key := range keys {
		var left []string
		for _, p := range survivors {
			left = append(left, p.url)
		}
		if at := loadsOf(survivors, key); len(at) != 1 || at[0] != ownerAmong(key, left...) {
			t.Errorf("%q was loaded at %v, want once, at its deputy %s", key, at, ownerAmong(key, left...))
		}
	}
}

// Contract: P3, P4
func TestOwnerKilledInTheMiddleOfALoadCostsOneMore(t *testing.T) {
	all := startProcesses(t, 4, patient)
	owner, survivors := all[3], all[:3]
	key := processKeys(all, owner, 500, "key", 1)[0]
	for _, p := range survivors {
		p.send("get 10 %s", key)
	}
	for len(loadsOf(all, key)) == 0 { // it says so
	}
	owner.signal(syscall.SIGKILL)
	for _, p := range survivors {
		p.got()
	}
	if at := loadsOf(survivors, key); len(at) != 1 {
		t.Errorf("the survivors loaded it %d times", len(at))
	}
}

// Contract: P4, P5
func TestStoppedOwnerIsReplacedAndBackWhenItGoesOn(t *testing.T) {
	all := startProcesses(t, 3, impatient)
	owner := all[2]
	keys := processKeys(all, owner, 0, "key", 4)
	all[0].send("get 1 %s", keys[0])
	all[0].got()
	owner.signal(syscall.SIGSTOP)
	owner.awaitStop()
	for _, p := range all[:2] {
		p.send("get 10 %s", keys[1])
	}
	for _, p := range all[:2] {
		p.got()
	}
	if at := loadsOf(all[:2], keys[1]); len(at) != 1 {
		t.Errorf("the others loaded it %d times", len(at))
	}
	all[0].send("get 10 %s", keys[2]) // costs no silence any more, see TestTimingStoppedOwnerCostsItsSilenceOnce
	all[0].got()
	owner.signal(syscall.SIGCONT)
	all[0].send("await %s alive", owner.url)
	all[0].answer()
	all[0].send("get 1 %s", keys[3])
	all[0].got()
	if at := loadsOf(all, keys[3]); len(at) != 1 || at[0] != owner.url {
		t.Errorf("%q was loaded at %v, want at its owner", keys[3], at)
	}
}

// Contract: P8
func TestBurstGivesItsDescriptorsBack(t *testing.T) {
	if _, err := os.ReadDir("/proc/self/fd"); err != nil {
		t.Skip("this system does not show a process's descriptors")
	}
	all := startProcesses(t, 2, patient)
	asker, owner := all[0], all[1]
	count := func() (n []int) {
		for _, p := range all {
			p.send("descriptors")
			n = append(n, p.answer()[0])
		}
		return n
	}
	before := count()
	asker.send("get 1 %s", strings.Join(processKeys(all, owner, 100, "burst", 2000), " "))
	for len(asker.answers) == 0 { // during the burst
		owner.send("descriptors")
		if n := owner.answer()[0] - before[1]; n > 80 { // 64 connections, and what the runtime may open
			t.Fatalf("the owner has %d descriptors more", n)
		}
	}
	asker.got()
	for i, n := range count() {
		if n-before[i] > 70 {
			t.Errorf("%s has %d descriptors more than before", all[i].url, n-before[i])
		}
	}
	loads := owner.allLoads()
	if n := len(slices.Compact(slices.Sorted(slices.Values(loads)))); n != 2000 || len(loads) != 2000 {
		t.Errorf("%d loads of %d keys at the owner", len(loads), n)
	}
}
