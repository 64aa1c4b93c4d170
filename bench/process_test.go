package bench

// The second process: this test binary started once more, in a role of main_test.go, with one core. It speaks one line, which is its address or its
// figure, and ends when its standard input closes, which happens at the latest when its parent dies, however it dies.

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

const roleVariable = "ONEFILL_BENCH_ROLE"

// startSecond starts a second process in a role and returns the line that it speaks. The process ends with the benchmark.
func startSecond(b *testing.B, role string, args ...string) string {
	b.Helper()
	program, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role, "GOMAXPROCS=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("second process, %s: %v", role, err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatalf("second process, %s: %v", role, err)
	}
	return strings.TrimSpace(line)
}

// speak tells the parent the one line that it waits for, and returns when the parent has had enough.
func speak(out io.Writer, line string) error {
	if _, err := fmt.Fprintln(out, line); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// listen takes a free port of the loopback interface.
func listen() (net.Listener, error) {
	return net.Listen("tcp", "127.0.0.1:0")
}
