// Tests of frames and messages: what they look like, what a reader makes of those of another release, and what it refuses.

package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

var update = flag.Bool("update", false, "write the golden bytes anew: only together with a new version")

// Contract: P13
func TestBytesOfVersionOneDoNotChange(t *testing.T) {
	if wire.Version != 1 {
		t.Fatalf("this release speaks version %d: keep the files of version 1, and write its own beside them", wire.Version)
	}
	for _, s := range samples() {
		t.Run(s.name, func(t *testing.T) {
			file := filepath.Join("testdata", "v1", s.name+".hex")
			got := message(s.write(nil))
			if *update {
				if err := os.WriteFile(file, []byte(hex.Dump(got)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if hex.Dump(got) != string(want) {
				t.Errorf("written:\n%swant:\n%s", hex.Dump(got), want)
			}
			kind, f, err := first(undump(t, string(want)), 1<<20)
			if err != nil || kind != s.kind {
				t.Fatalf("read as kind %d, %v", kind, err)
			}
			if v, err := s.read(f); err != nil || !same(v, s.value) {
				t.Errorf("read %+v, %v, want %+v", v, err, s.value)
			}
		})
	}
}

// undump turns what hex.Dump wrote back into bytes.
func undump(t *testing.T, dump string) (b []byte) {
	t.Helper()
	for line := range strings.Lines(dump) {
		if len(line) < 60 {
			continue
		}
		part, err := hex.DecodeString(strings.ReplaceAll(line[8:59], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, part...)
	}
	return b
}

// Contract: P13
func TestEveryKindOfFrameHasGoldenBytes(t *testing.T) {
	all := readers()
	for k := wire.KindHello; k <= wire.KindRefuse; k++ {
		if all[k] == nil {
			t.Errorf("kind %d has none", k)
		}
	}
	if all[wire.KindRefuse+1] != nil {
		t.Error("the last kind is not KindRefuse")
	}
}

// Contract: P13
func TestReaderSkipsFieldsThatItDoesNotKnow(t *testing.T) {
	for _, s := range samples() {
		longer := lengthen(t, s.write(nil), []byte("fields of a later release"))
		kind, f, err := first(message(longer), 1<<20)
		if err != nil || kind != s.kind {
			t.Errorf("%s: kind %d, %v", s.name, kind, err)
			continue
		}
		if v, err := s.read(f); err != nil || !same(v, s.value) {
			t.Errorf("%s: read %+v, %v", s.name, v, err)
		}
	}
}

// lengthen appends bytes to the fields of a short frame.
func lengthen(t *testing.T, frame, more []byte) []byte {
	t.Helper()
	kind, _, err := first(message(frame), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	fields := frame[3:] // two bytes of length, one of kind
	n := 1 + len(fields) + len(more)
	return append(append([]byte{byte(n) | 0x80, byte(n >> 7), byte(kind)}, fields...), more...)
}

// Contract: P13
func TestMissingFieldsAreZero(t *testing.T) {
	for _, s := range samples() {
		kind, f, err := first(message([]byte{1, byte(s.kind)}), 1<<20)
		if err != nil || kind != s.kind {
			t.Errorf("%s: kind %d, %v", s.name, kind, err)
			continue
		}
		if v, err := s.read(f); err != nil || !same(v, s.zero) {
			t.Errorf("%s: read %+v, %v, want zero", s.name, v, err)
		}
	}
}

// Contract: P13
func TestFramesOfUnknownKindsAreReadAndCanBeSkipped(t *testing.T) {
	unknown := append([]byte{0x81, 0x20, 200}, make([]byte, 4096)...)
	in := wire.NewReader(bytes.NewReader(message(unknown, wire.AppendForget(nil, 5))), 1<<20)
	if kind, _, err := in.Next(); kind != 200 || err != nil {
		t.Errorf("kind %d, %v", kind, err)
	}
	kind, f, err := in.Next()
	if kind != wire.KindForget || err != nil {
		t.Fatalf("kind %d, %v", kind, err)
	}
	if id, err := f.Forget(); id != 5 || err != nil {
		t.Errorf("forget %d, %v", id, err)
	}
	if _, _, err := in.Next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// Contract: P13
func TestAnotherVersionIsRefusedWithBothNamed(t *testing.T) {
	_, _, err := first([]byte("1fl\x07\x01\x06"), 1<<20)
	if !errors.Is(err, wire.ErrFormat) || !strings.Contains(err.Error(), "version 7") || !strings.Contains(err.Error(), fmt.Sprint("speaks ", wire.Version)) {
		t.Errorf("error %v", err)
	}
}

// Contract: S5
func TestWhatIsNoMessageIsRefused(t *testing.T) {
	frame := wire.AppendForget(nil, 5)
	for _, test := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"nothing", nil, wire.ErrFormat},
		{"less than the beginning", []byte("1fl"), wire.ErrFormat},
		{"HTML", []byte("<html></html>"), wire.ErrFormat},
		{"a frame without a kind", message([]byte{0}), wire.ErrFormat},
		{"a frame that breaks off", message(frame[:3]), io.ErrUnexpectedEOF},
		{"a length that breaks off", message([]byte{0x80}), io.ErrUnexpectedEOF},
		{"a length of more than 64 bits", message(bytes.Repeat([]byte{0xff}, 12)), wire.ErrFormat},
		{"a length of 2^31", message([]byte{0x80, 0x80, 0x80, 0x80, 8, 1}), wire.ErrTooLarge},
		{"a length of 2^63", message(append(bytes.Repeat([]byte{0x80}, 9), 1)), wire.ErrTooLarge},
		{"a frame one byte too long", message(append([]byte{0x81, 0x80, 0x40}, make([]byte, 1<<20+1)...)), wire.ErrTooLarge},
	} {
		if _, _, err := first(test.bytes, 1<<20); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	if _, _, err := first(message(), 1<<20); err != io.EOF {
		t.Errorf("a message without frames: %v", err)
	}
}

// Contract: S5
func TestBrokenFieldsAreRefused(t *testing.T) {
	for _, s := range samples() {
		whole := s.write(nil)[3:]
		for n := range whole {
			_, f, err := first(message(append([]byte{byte(n + 1), byte(s.kind)}, whole[:n]...)), 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = s.read(f) // no panic; fields that are missing altogether are zero
		}
	}
	for name, f := range map[string][]byte{
		"a string longer than the frame":    {byte(wire.KindHello), 200, 1, 'x'},
		"a list longer than the frame":      {byte(wire.KindAlive), 0xff, 0xff, 3, 1},
		"digests longer than the frame":     {byte(wire.KindAlive), 1, 1, 0xff, 0xff, 3},
		"half a digest":                     {byte(wire.KindAck), 1, 1, 2, 3},
		"an integer that does not end":      {byte(wire.KindForget), 0x80},
		"an integer of more than 64 bits":   append([]byte{byte(wire.KindForget)}, bytes.Repeat([]byte{0xff}, 11)...),
		"keys more than the frame has room": {byte(wire.KindInvalidate), 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 7, 0},
	} {
		_, fields, err := first(message(append([]byte{byte(len(f))}, f...)), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readers()[wire.Kind(f[0])](fields); !errors.Is(err, wire.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Contract: S5
func TestListOfMoreStringsThanAllowedCostsNoMemory(t *testing.T) {
	for n, want := range map[int]error{wire.MaxStrings: nil, wire.MaxStrings + 1: wire.ErrTooLarge, 4 << 20: wire.ErrTooLarge} {
		_, fields, err := first(message(wire.AppendInvalidate(nil, &onefill.Invalidation{Keys: make([]string, n)})), 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		inv, err := fields.Invalidation()
		runtime.ReadMemStats(&after)
		if !errors.Is(err, want) || err == nil && len(inv.Keys) != n {
			t.Errorf("%d keys: %v, want %v", n, err, want)
		}
		if cost := after.TotalAlloc - before.TotalAlloc; cost > 8<<20 {
			t.Errorf("%d keys cost %d bytes", n, cost)
		}
	}
}

func TestFramesOfEveryLengthArriveWhole(t *testing.T) {
	for _, n := range []int{0, 1, 100, 1<<14 - 20, 1<<14 - 10, 1<<14 - 5, 1<<14 - 4, 1<<14 - 3, 1 << 14, 1<<21 - 20, 1<<21 + 1, 5 << 20} {
		want := onefill.Answer{Status: onefill.StatusValue, Data: strings.Repeat("v", n)}
		frame := wire.AppendAnswer([]byte("before"), 1, &want)
		b := message(frame[len("before"):], wire.AppendMark(nil))
		for name, in := range map[string]io.Reader{"at once": bytes.NewReader(b), "a byte at a time": slow{bytes.NewReader(b)}} {
			if name != "at once" && n > 1<<14 {
				continue
			}
			r := wire.NewReader(in, 1<<30)
			_, f, err := r.Next()
			if err != nil {
				t.Fatal(err)
			}
			_, got, err := f.Answer()
			if err != nil || !same(*got, want) {
				t.Errorf("%d bytes, %s: %d arrive, %v", n, name, len(got.Data), err)
			}
			if kind, _, err := r.Next(); kind != wire.KindMark || err != nil {
				t.Errorf("%d bytes, %s: then kind %d, %v", n, name, kind, err)
			}
		}
	}
}

// Contract: S5
func TestPromisedLengthCostsNothingUntilItArrives(t *testing.T) {
	promise := message([]byte{0xff, 0xff, 0xff, 0xff, 3, 1, 2, 3}) // 1 GiB
	cost := testing.AllocsPerRun(1, func() {})
	bytesOf := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := first(promise, 1<<30); !errors.Is(err, io.ErrUnexpectedEOF) {
				b.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if cost > 0 || bytesOf > 128<<10 {
		t.Errorf("%d bytes for a promise", bytesOf)
	}
}

func TestReaderStartsAnewAfterReset(t *testing.T) {
	r := wire.NewReader(bytes.NewReader([]byte("garbage")), 1<<20)
	if _, _, err := r.Next(); !errors.Is(err, wire.ErrFormat) {
		t.Error(err)
	}
	r.Reset(bytes.NewReader(message(wire.AppendForget(nil, 9))), 1<<20)
	kind, f, err := r.Next()
	if err != nil || kind != wire.KindForget {
		t.Fatal(kind, err)
	}
	if id, _ := f.Forget(); id != 9 {
		t.Error(id)
	}
}
