// The one JSON object that a command prints with -json, and what it says of the machine and the code.

package measure

import (
	"encoding/json"
	"io"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// Report is what a command found. Fields of rows whose names end in _ms are milliseconds as floating-point numbers.
type Report struct {
	Commit   string            `json:"commit"` // of the code; empty where that is unknown
	Go       string            `json:"go"`
	CPUs     int               `json:"cpus"`
	Versions map[string]string `json:"versions"` // of the modules that the command was built from
	Rows     []any             `json:"rows"`
}

// NewReport returns a report of rows, made on this machine by this program.
func NewReport(rows ...any) Report {
	return Report{Commit: commit(), Go: runtime.Version(), CPUs: runtime.NumCPU(), Versions: versions(), Rows: rows}
}

// Write writes the report as one JSON object on one line.
func (r Report) Write(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// commit returns the commit that the go command has built in, which it does not with go run, else that of the working directory.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	out, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

func versions() map[string]string {
	found := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != "" {
			found[m.Path] = m.Version
		}
	}
	return found
}
