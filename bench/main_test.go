package bench

// What every run has in common: the roles that a second process plays, and the lines that say what was measured on which machine.
// Starting and stopping that process is in process_test.go.

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// roles are what the test binary can be instead of a run of tests, by the value of roleVariable.
var roles = map[string]func(out io.Writer, args []string) error{
	"serve onefill":        serveOnefill,
	"serve onefill-secret": serveOnefillSecret,
	"serve groupcache":     serveGroupcache,
	"serve nethttp":        serveNetHTTP,
	"weigh":                weigh,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(roleVariable); name != "" {
		os.Exit(play(name))
	}
	flag.Parse()
	if pattern := flag.Lookup("test.bench").Value.String(); pattern != "" {
		printConfiguration(os.Stdout)
	}
	os.Exit(m.Run())
}

// play runs one role to its end and returns the exit code.
func play(name string) int {
	role, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "bench: no role %q\n", name)
		return 2
	}
	if err := role(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "bench: %s: %v\n", name, err)
		return 1
	}
	return 0
}

// printConfiguration writes "key: value" lines, which benchstat keeps beside the figures. The go command adds goos, goarch, pkg and the CPU's name.
func printConfiguration(out io.Writer) {
	fmt.Fprintf(out, "go: %s\n", runtime.Version())
	fmt.Fprintf(out, "cpus: %d\n", runtime.NumCPU())
	fmt.Fprintf(out, "commit: %s\n", answer("git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"))
	for _, rival := range []struct{ key, module string }{
		{"groupcache", "github.com/golang/groupcache"},
		{"otter", "github.com/maypok86/otter/v2"},
		{"sturdyc", "github.com/viccon/sturdyc"},
		{"golanglru", "github.com/hashicorp/golang-lru/v2"},
		{"goredis", "github.com/redis/go-redis/v9"},
		{"redislock", "github.com/bsm/redislock"},
		{"redsync", "github.com/go-redsync/redsync/v4"},
		{"rueidis", "github.com/redis/rueidis"}, // rueidislock is part of it
		{"rueidisaside", "github.com/redis/rueidis/rueidisaside"},
	} {
		fmt.Fprintf(out, "%s: %s\n", rival.key, answer("go", "list", "-m", "-f", "{{.Version}}", rival.module))
	}
}

// answer returns what a command prints, or "unknown". Commands are asked because test binaries carry neither a commit nor the versions of modules.
func answer(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
