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
	"strings"
	"testing"
	"time"

	"github.com/onefill/onefill/internal/measure"
)

const commandVariable = "ONEFILL_STAMPEDE_TEST"

func TestMain(m *testing.M) {
	switch {
	case measure.Role() == processRole:
		os.Exit(live())
	case os.Getenv(commandVariable) != "":
		os.Exit(stampede(os.Args[1:], os.Stdout, os.Stderr))
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

// rowsOf runs the command and returns its rows by strategy.
func rowsOf(t *testing.T, cmd *exec.Cmd) map[string]row {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	var report struct {
		Go   string
		CPUs int
		Rows []row
	}
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if report.Go != runtime.Version() || report.CPUs != runtime.NumCPU() {
		t.Errorf("report is %s", out)
	}
	rows := make(map[string]row)
	for _, r := range report.Rows {
		rows[r.Strategy] = r
	}
	if len(rows) != len(strategies) || len(report.Rows) != len(strategies) {
		t.Fatalf("report is %s", out)
	}
	return rows
}

// Contract: L2, R20
func TestOnlyOnefillAndAPatientLockLoadOnce(t *testing.T) {
	log := t.TempDir() + "/loads"
	rows := rowsOf(t, command(t, "-json", "-processes", "3", "-callers", "4", "-load", "300ms", "-loadlog", log))
	loads := 0
	for name, r := range rows {
		if r.Load != 300 || r.Processes != 3 || r.Callers != 12 || r.Errors != 0 || r.Killed != 0 || r.Commands == 0 || r.WaitP99 < r.WaitP50 || r.WaitP50 <= 0 {
			t.Errorf("%s: %+v", name, r)
		}
		loads += r.Loads
	}
	if rows["onefill"].Loads != 1 || rows["lock-poll"].Loads != 1 || rows["lock-sleep"].Loads < 2 || rows["none"].Loads < 2 {
		t.Errorf("loads: %+v", rows)
	}
	if lag := rows["onefill"].LagP99; lag <= 0 {
		t.Errorf("nobody was woken: %+v", rows["onefill"])
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(content, []byte("\n")); lines != loads || !bytes.Contains(content, []byte(`"ms":300`)) {
		t.Errorf("%d lines for %d loads: %s", lines, loads, content)
	}
}

// Contract: L5
func TestAKilledHolderCostsOneMoreLoad(t *testing.T) {
	r := rowsOf(t, command(t, "-json", "-processes", "3", "-callers", "2", "-load", "300ms", "-kill-holder"))["onefill"]
	if r.Loads != 2 || r.Killed == 0 || r.Callers != 4 || r.Errors != 0 {
		t.Errorf("row is %+v", r)
	}
}

func TestWithoutRedisServerAnEmbeddedOneTakesItsPlace(t *testing.T) {
	t.Setenv("PATH", "")
	cmd := command(t, "-json", "-processes", "2", "-callers", "2", "-load", "200ms")
	if r := rowsOf(t, cmd)["onefill"]; r.Loads != 1 || r.Commands == 0 {
		t.Errorf("row is %+v", r)
	}
	if said := cmd.Stderr.(*bytes.Buffer).String(); !strings.Contains(said, "miniredis") {
		t.Errorf("it did not say so: %s", said)
	}
}

func TestWrongArgumentsAreOneLineAndExitCode2(t *testing.T) {
	for _, args := range []string{
		"-processes 1", "-processes -3", "-processes 201", "-processes x", "-callers 0", "-callers 1001", "-load -1s", "-load 450", "-load 1s,,2s", "-load 0",
		"-load 2h", "-seed -1", "-nonsense", "argument", "-loadlog /", "-json -callers 0", "-redis nonsense", "-redis redis://127.0.0.1:1",
	} {
		var stdout, stderr bytes.Buffer
		code := stampede(strings.Fields(args), &stdout, &stderr)
		if code != 2 || stdout.Len() > 0 || strings.Count(stderr.String(), "\n") != 1 {
			t.Errorf("stampede %s: exit code %d, output %q, error output %q", args, code, &stdout, &stderr)
		}
	}
}

func TestTheFlagsAreListedOnRequest(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := stampede([]string{"-h"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 || !strings.Contains(stdout.String(), "-kill-holder") {
		t.Errorf("exit code %d, output %q, error output %q", code, &stdout, &stderr)
	}
}

func TestACheckThatFailsIsNamed(t *testing.T) {
	good := []*row{{Strategy: onefillStrategy, Loads: 1, values: 1}, {Strategy: onefillStrategy, Loads: 2, values: 1, Killed: 7}, {Strategy: "none", Loads: 50}}
	if err := check(good); err != nil {
		t.Errorf("%v, want no error", err)
	}
	for want, bad := range map[string]row{
		"2 loads":                   {Loads: 2},
		"1 loads, want 2":           {Loads: 1, Killed: 7},
		"3 callers got an error":    {Loads: 1, Errors: 3},
		"2 different values":        {Loads: 1, values: 2},
		"waited 5s, want at most 4": {Loads: 2, Killed: 7, longest: 5 * time.Second},
	} {
		bad.Strategy = onefillStrategy
		if err := check([]*row{&bad}); err == nil || !strings.Contains(err.Error(), want) {
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
	log := t.TempDir() + "/loads"
	cmd := command(t, "-processes", "2", "-callers", "1", "-load", "1h", "-loadlog", log)
	cmd.Stderr = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if err := read.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(read)
	if line, err := lines.ReadString('\n'); err != nil {
		t.Fatalf("no progress: %q, %v", line, err)
	}
	for content, _ := os.ReadFile(log); len(content) == 0; content, _ = os.ReadFile(log) { // until someone loads
		time.Sleep(5 * time.Millisecond)
	}
	if err := cmd.Process.Signal(with); err != nil {
		t.Fatal(err)
	}
	said, err := io.ReadAll(lines)
	if err != nil {
		t.Fatalf("a process goes on: %v; error output %q", err, said)
	}
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != code {
		t.Errorf("exit code %d, want %d; error output %q", got, code, said)
	}
}
