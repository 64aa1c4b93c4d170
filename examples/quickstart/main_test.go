package main

// The command as its users run it: this test binary, started once more, is the command, which starts its processes.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/onefill/onefill/internal/measure"
)

const commandVariable = "ONEFILL_QUICKSTART_TEST"

func TestMain(m *testing.M) {
	switch {
	case measure.Role() == processRole:
		os.Exit(live())
	case os.Getenv(commandVariable) != "":
		os.Exit(quickstart(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// command returns the command with these arguments, not yet started.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), commandVariable+"=yes")
	return cmd
}

// Contract: R2, P3
func TestABurstCostsOneLoadAndSoDoesOneWhoseOwnerWasKilled(t *testing.T) {
	log := t.TempDir() + "/loads"
	cmd := command(t, "-json", "-load", "300ms", "-loadlog", log)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Go   string
		CPUs int
		Rows []row
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(report.Rows) != 1 || report.Go != runtime.Version() || report.CPUs != runtime.NumCPU() {
		t.Fatalf("report is %s", out)
	}
	r := report.Rows[0]
	if r.Processes != 3 || r.Callers != 300 || r.SurvivorCallers != 100 || r.Loads != 1 || r.LoadsAfterKill != 1 || r.Errors != 0 {
		t.Errorf("row is %s", out)
	}
	if len(r.PIDs) != 3 || r.Owner == "" || r.Killed == "" {
		t.Errorf("row is %s", out)
	}
	if r.WaitP50 <= 0 || r.WaitP99 < r.WaitP50 {
		t.Errorf("half of the callers waited at most %v ms, 99 in 100 at most %v ms", r.WaitP50, r.WaitP99)
	}
	checkLoadLog(t, log, r.PIDs)
}

// checkLoadLog expects one load of each key, by two of the processes or one.
func checkLoadLog(t *testing.T, name string, pids []int) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for line := range strings.Lines(string(content)) {
		var l struct {
			T       int64
			PID     int
			Cluster string
			Key     string
			MS      float64
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if !slices.Contains(pids, l.PID) || l.MS != 300 || l.Cluster == "" || time.Since(time.UnixMilli(l.T)).Abs() > time.Minute {
			t.Errorf("load log has %s", line)
		}
		keys = append(keys, l.Key)
	}
	if want := []string{firstKey, secondKey}; !slices.Equal(keys, want) {
		t.Errorf("the load log has loads of %q, want %q", keys, want)
	}
}

func TestWrongArgumentsAreOneLineAndExitCode2(t *testing.T) {
	for _, args := range []string{
		"-processes 0", "-processes 1", "-processes -3", "-processes 101", "-processes x", "-callers 0", "-callers -1", "-load -1s", "-load 450",
		"-load 2h", "-nonsense", "argument", "-loadlog /", "-json -callers 0",
	} {
		var stdout, stderr bytes.Buffer
		code := quickstart(strings.Fields(args), &stdout, &stderr)
		if code != 2 || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("quickstart %s: exit code %d, output %q, error output %q", args, code, &stdout, &stderr)
		}
	}
}

func TestTheFlagsAreListedOnRequest(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := quickstart([]string{"-h"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "-loadlog") {
		t.Errorf("exit code %d, output %q, error output %q", code, &stdout, &stderr)
	}
}

func TestACheckThatFailsIsNamed(t *testing.T) {
	good := row{Loads: 1, LoadsAfterKill: 1, values: []int{1, 1}}
	if err := good.check(); err != nil {
		t.Errorf("%v, want no error", err)
	}
	for want, bad := range map[string]row{
		"2 loads of " + firstKey:  {Loads: 2, LoadsAfterKill: 1},
		"0 loads of " + secondKey: {Loads: 1},
		"3 callers got an error":  {Loads: 1, LoadsAfterKill: 1, Errors: 3},
		"2 different values":      {Loads: 1, LoadsAfterKill: 1, values: []int{1, 2}},
	} {
		if err := bad.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("check says %v, want %q", err, want)
		}
	}
}

func TestAnInterruptLeavesNoProcessBehind(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no way to interrupt another process")
	}
	testEnd(t, os.Interrupt, 130)
}

func TestProcessesDieWithTheCommandEvenWhenItIsKilled(t *testing.T) {
	testEnd(t, os.Kill, -1)
}

// testEnd starts the command, ends it in the middle of a long load, and waits until no process holds its standard error any more.
func testEnd(t *testing.T, with os.Signal, code int) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := command(t, "-load", "1h")
	cmd.Stderr = write
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	lines := bufio.NewScanner(stdout)
	for lines.Scan() && !strings.Contains(lines.Text(), "at the same moment") {
	}
	if err := cmd.Process.Signal(with); err != nil {
		t.Fatal(err)
	}
	if err := read.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(read)
	if err != nil {
		t.Fatalf("a process goes on: %v; error output %q", err, said)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d; error output %q", got, code, said)
	}
}
