package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if Role() == "echo" {
		if err := Serve(echo); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func echo(order string) (string, error) {
	if order == "fail" {
		return "", errors.New("as told")
	}
	return order + order, nil
}

func TestAProcessAnswersUntilItIsStopped(t *testing.T) {
	p, err := Start(t.Context(), "echo")
	if err != nil {
		t.Fatal(err)
	}
	for _, order := range []string{"a", "line\nbreak"} {
		if got, err := Call[string, string](p, order); got != order+order || err != nil {
			t.Errorf("Call(%q) = %q, %v", order, got, err)
		}
	}
	if _, err := Call[string, string](p, "fail"); err == nil || !strings.Contains(err.Error(), "as told") {
		t.Errorf("Call returns %v, want the process's error", err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

func TestACallToADeadProcessIsAnError(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	killed, err := Start(ctx, "echo")
	if err != nil {
		t.Fatal(err)
	}
	killed.Kill()
	if _, err := Call[string, string](killed, "a"); err == nil {
		t.Error("a killed process answers")
	}
	cancelled, err := Start(ctx, "echo")
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if cancelled.Stop() == nil {
		t.Error("a process whose context has ended stops by itself, want it killed")
	}
}

func TestPercentilesAreNearestRanks(t *testing.T) {
	waits := make([]time.Duration, 100)
	for i := range waits {
		waits[i] = time.Duration(100-i) * time.Millisecond
	}
	for p, want := range map[float64]time.Duration{0: 1, 1: 1, 50: 50, 50.1: 51, 99: 99, 100: 100} {
		if got := Percentile(waits, p); got != want*time.Millisecond {
			t.Errorf("percentile %v is %v, want %vms", p, got, int(want))
		}
	}
	if got := Percentile(nil, 99); got != 0 {
		t.Errorf("the percentile of nothing is %v", got)
	}
	if waits[0] != 100*time.Millisecond {
		t.Error("the waits were sorted in place")
	}
}

func TestLinesOfTheLoadLogDoNotMix(t *testing.T) {
	name := t.TempDir() + "/loads"
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			log, err := OpenLoadLog(name)
			if err != nil {
				t.Error(err)
				return
			}
			defer log.Close()
			for range 100 {
				if err := log.Begin("a", strings.Repeat("key\n", 50), 1500*time.Microsecond); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range bytes.Lines(content) {
		var l loadLine
		if err := json.Unmarshal(line, &l); err != nil || l.PID != os.Getpid() || l.Took != 1.5 {
			t.Fatalf("%q: %v", line, err)
		}
		lines++
	}
	if lines != 800 {
		t.Errorf("%d lines, want 800", lines)
	}
}

func TestNoLoadLogKeepsNothing(t *testing.T) {
	log, err := OpenLoadLog("")
	if err := errors.Join(err, log.Begin("a", "k", 0), log.Close()); err != nil {
		t.Error(err)
	}
}

func TestExitCodesSayWhatWentWrong(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{nil, 0, ""},
		{flag.ErrHelp, 0, ""},
		{errors.New("check failed"), 1, "name: check failed\n"},
		{Usagef("-n is %d", 3), 2, "name: -n is 3 (-h lists the flags)\n"},
	} {
		var stderr bytes.Buffer
		if code := Run("name", &stderr, func(context.Context) error { return c.err }); code != c.code || stderr.String() != c.says {
			t.Errorf("%v: exit code %d, %q, want %d, %q", c.err, code, &stderr, c.code, c.says)
		}
	}
}

func TestArgumentsThatAreNoFlagsAreUsageErrors(t *testing.T) {
	for _, args := range []string{"-x", "-n", "-n y", "y", "-n 1 y"} {
		flags := flag.NewFlagSet("name", flag.ContinueOnError)
		flags.Int("n", 0, "a number")
		var usage *UsageError
		if err := Parse(flags, io.Discard, strings.Fields(args)); !errors.As(err, &usage) || strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q): %v", args, err)
		}
	}
}

func TestARedisOfOnesOwnAnswersUntilItIsClosed(t *testing.T) {
	for name, path := range map[string]string{"redis-server, where there is one": os.Getenv("PATH"), "embedded": ""} {
		t.Setenv("PATH", path)
		var said bytes.Buffer
		r, err := OpenRedis(t.Context(), "", &said)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if r.Embedded != (said.Len() > 0) || path == "" && !r.Embedded {
			t.Errorf("%s: embedded is %v, said %q", name, r.Embedded, &said)
		}
		if given, err := OpenRedis(t.Context(), r.URL, io.Discard); err != nil || given.URL != r.URL {
			t.Errorf("%s: at its URL: %v", name, err)
		}
		r.Close()
		var usage *UsageError
		if _, err := OpenRedis(t.Context(), r.URL, io.Discard); !errors.As(err, &usage) {
			t.Errorf("%s: a server that is gone: %v, want a UsageError", name, err)
		}
	}
}

func TestTheReportIsOneLineOfJSON(t *testing.T) {
	var out bytes.Buffer
	if err := NewReport(map[string]int{"loads": 1}).Write(&out); err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(out.Bytes(), &fields); err != nil || bytes.Count(out.Bytes(), []byte("\n")) != 1 {
		t.Fatalf("%v in %q", err, &out)
	}
	for _, name := range []string{"commit", "go", "cpus", "versions", "rows"} {
		if fields[name] == nil {
			t.Errorf("the report lacks %s: %s", name, &out)
		}
	}
}
