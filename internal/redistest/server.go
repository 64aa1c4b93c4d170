// Package redistest starts real Redis servers for tests: one (server.go), a Cluster of three (cluster.go), or a Sentinel group (sentinel.go), on free ports of
// the loopback, without persistence, gone with the test. It fakes nothing: tests that can do without a server use miniredis.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds every wait for a server to come up or to agree with others.
const patience = 20 * time.Second

// Require skips the test, saying so, where redis-server is not on PATH; with ONEFILL_REDIS=required in the environment it fails it instead.
func Require(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range append([]string{"redis-server"}, programs...) {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("ONEFILL_REDIS") == "required" {
				t.Fatalf("%v, and ONEFILL_REDIS=required", err)
			}
			t.Skipf("needs a real Redis: %v", err)
		}
	}
}

// Server is one redis-server process. Its methods fail the test they belong to.
type Server struct {
	t    testing.TB
	port int
	dir  string
	args []string

	mu      sync.Mutex // guards process and exited
	process *os.Process
	exited  chan struct{}
	output  *bytes.Buffer // of the process; read it only once it has exited
}

// Start starts a standalone server, with further arguments of redis-server's if any ("--maxmemory", "2mb"), and stops it when the test ends.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	Require(t)
	return start(t, 0, args...)
}

// start starts a server on a port of its own choice, or on the given one.
func start(t testing.TB, port int, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, port: port, dir: t.TempDir(), args: args}
	t.Cleanup(s.Kill)
	for range 10 { // another program may take a free port between the choice and the start
		if port == 0 {
			s.port = freePort(t)
		}
		if s.run() {
			return s
		}
	}
	t.Fatalf("redis-server does not start: %s", s.output)
	return nil
}

// freePort returns a port that is free now, and whose Cluster bus port (10000 above) is free too.
func freePort(t testing.TB) int {
	t.Helper()
	for range 1000 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		if port > 55535 {
			continue
		}
		bus, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port+10000))
		if err == nil {
			_ = bus.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

// run starts the process and reports whether it answers; false when it has exited.
func (s *Server) run() bool {
	s.t.Helper()
	args := append([]string{"--port", strconv.Itoa(s.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.dir}, s.args...)
	command := exec.Command("redis-server", args...)
	command.SysProcAttr = dieWithParent()
	s.output = new(bytes.Buffer)
	command.Stdout, command.Stderr = s.output, s.output
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = command.Wait()
		close(exited)
	}()
	s.mu.Lock()
	s.process, s.exited = command.Process, exited
	s.mu.Unlock()
	return s.answers(exited)
}

// answers polls with a raw PING, since a client would pause 100 ms between dials. A server that wants a password is up too.
func (s *Server) answers(exited <-chan struct{}) bool {
	s.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if ping(s.Addr()) {
			return true
		}
		select {
		case <-exited:
			return false
		case <-time.After(5 * time.Millisecond):
		}
	}
	s.t.Fatalf("redis-server at %s does not answer", s.Addr())
	return false
}

func ping(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	answer := make([]byte, 5)
	_, err = io.ReadFull(conn, answer)
	return err == nil && (string(answer) == "+PONG" || string(answer) == "-NOAU")
}

// Addr returns host and port.
func (s *Server) Addr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// Client returns a client with go-redis's default options, changed by the given functions, and closes it when the test ends.
func (s *Server) Client(change ...func(*redis.Options)) *redis.Client {
	options := &redis.Options{Addr: s.Addr()}
	for _, c := range change {
		c(options)
	}
	client := redis.NewClient(options)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Kill ends the process at once. Killing it again does nothing.
func (s *Server) Kill() {
	s.mu.Lock()
	process, exited := s.process, s.exited
	s.process = nil
	s.mu.Unlock()
	if process != nil {
		_ = process.Kill()
		<-exited
	}
}

// Restart starts the server again, empty, on the same port; it kills it first if need be.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if !s.run() {
		s.t.Fatalf("redis-server does not start again: %s", s.output)
	}
}

// Pause stops the process in its tracks: it accepts connections and never answers. Resume lets it go on.
func (s *Server) Pause() { s.signal(stop) }

// Resume undoes Pause.
func (s *Server) Resume() { s.signal(resume) }

func (s *Server) signal(what os.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Signal(what); err != nil {
		s.t.Fatal(err)
	}
}

// eventually waits until the condition holds, asking every 20 ms.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("waited %v for %s", patience, what)
}

// info returns one field of INFO, or "".
func info(addr, section, field string) string {
	client := redis.NewClient(&redis.Options{Addr: addr, DialerRetries: 1, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	text, _ := client.Info(context.Background(), section).Result()
	for line := range bytes.Lines([]byte(text)) {
		if value, found := bytes.CutPrefix(bytes.TrimSpace(line), []byte(field+":")); found {
			return string(value)
		}
	}
	return ""
}

// write puts a file into a directory of the test's own and returns its path.
func write(t testing.TB, name, format string, args ...any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
