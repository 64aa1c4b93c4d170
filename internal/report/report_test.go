package report_test

// The log that does not flood, from the outside: what reaches the logger behind it, and what is counted.

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/internal/report"
)

func capture() (*report.Log, *bytes.Buffer) {
	var out bytes.Buffer
	return report.New(slog.New(slog.NewTextHandler(&out, nil))), &out
}

// Contract: T7
func TestOneLineASecondForEachKindWithTheNumberOfThoseBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := capture()
		for range 50 { // 5 seconds
			log.Warn("a leak", slog.Int("litres", 3))
			log.Error("a fire")
			time.Sleep(100 * time.Millisecond)
		}
		text := out.String()
		for _, want := range []string{`level=WARN msg="onefill: a leak" litres=3`, `level=ERROR msg="onefill: a fire"`, "skipped=9"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing in\n%s", want, text)
			}
		}
		if lines := strings.Count(text, "\n"); lines != 10 {
			t.Errorf("%d lines for two kinds in five seconds:\n%s", lines, text)
		}
		if totals := log.Totals(); totals["a leak"] != 50 || totals["a fire"] != 50 || len(totals) != 2 {
			t.Errorf("counted %v", totals)
		}
	})
}

// Contract: T7
func TestFirstLineOfAKindIsNotDelayedByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := capture()
		for _, kind := range []string{"a", "b", "c"} {
			log.Warn(kind)
		}
		if lines := strings.Count(out.String(), "\n"); lines != 3 || strings.Contains(out.String(), "skipped") {
			t.Errorf("%d lines:\n%s", lines, out)
		}
	})
}

func TestNoLoggerMeansTheDefaultOneAndANilLogLogsNothing(t *testing.T) {
	var out bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	defer slog.SetDefault(before)
	report.New(nil).Warn("a leak")
	if !strings.Contains(out.String(), "a leak") {
		t.Errorf("the default logger got %q", out.String())
	}
	var none *report.Log
	none.Warn("a leak")
	if totals := none.Totals(); totals != nil {
		t.Errorf("a nil Log counted %v", totals)
	}
}
