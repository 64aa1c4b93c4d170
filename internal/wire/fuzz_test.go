// Fuzz tests of the decoders: no input makes them panic, loop, or allocate beyond the input's size plus a constant.

package wire_test

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

// perByte is what a byte of input may cost in memory: the smallest element of a list, an Alive or a string, is one byte on the wire and 32 or 16 in memory.
// perRun is the constant: a reader's buffers.
const (
	perByte = 160
	perRun  = 256 << 10
)

// bounded fails the test if run allocates more than input of n bytes may cost.
func bounded(t *testing.T, n int, run func()) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before) // exact; runtime/metrics counts whole spans and is off by more than perRun
	run()
	runtime.ReadMemStats(&after)
	if cost := after.TotalAlloc - before.TotalAlloc; cost > uint64(n*perByte+perRun) {
		t.Errorf("%d bytes of input cost %d", n, cost)
	}
}

// Contract: S5
func FuzzReader(f *testing.F) {
	for _, s := range samples() {
		f.Add(message(s.write(nil), wire.AppendMark(nil)))
	}
	f.Add([]byte("1fl\x01\xff\xff\xff\xff\x07\x01"))
	f.Add([]byte("1fl\x02"))
	f.Add([]byte("HTTP/1.1 503"))
	all := readers()
	f.Fuzz(func(t *testing.T, b []byte) {
		bounded(t, len(b), func() {
			in := wire.NewReader(bytes.NewReader(b), 1<<30)
			for frames := 0; ; frames++ {
				kind, fields, err := in.Next()
				if err != nil {
					if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, wire.ErrFormat) && !errors.Is(err, wire.ErrTooLarge) {
						t.Errorf("error %v", err)
					}
					return
				}
				if frames > len(b) {
					t.Fatal("more frames than bytes")
				}
				if read := all[kind]; read != nil {
					if _, err := read(fields); err != nil && !errors.Is(err, wire.ErrFormat) && !errors.Is(err, wire.ErrTooLarge) {
						t.Errorf("kind %d: error %v", kind, err)
					}
				}
			}
		})
	})
}

// Contract: S5
func FuzzMessages(f *testing.F) {
	for _, s := range samples() {
		f.Add(byte(s.kind), s.write(nil)[3:])
	}
	f.Add(byte(wire.KindAlive), bytes.Repeat([]byte{0x7f}, 200))
	all := readers()
	f.Fuzz(func(t *testing.T, kind byte, fields []byte) {
		read := all[wire.Kind(kind)]
		if read == nil || len(fields) > 1<<20 {
			return
		}
		frame := frameOf(kind, fields)
		bounded(t, len(fields), func() {
			got, fieldsOf, err := first(message(frame), 1<<30)
			if err != nil || byte(got) != kind {
				t.Fatalf("kind %d, %v", got, err)
			}
			value, err := read(fieldsOf)
			if err != nil {
				return
			}
			if again := rewrite(value); again != nil { // what was read is what is read again once it is written
				_, fieldsOf, err := first(message(again), 1<<30)
				if err != nil {
					t.Fatal(err)
				}
				if twice, err := read(fieldsOf); err != nil || !same(twice, value) {
					t.Errorf("read %+v, then %+v, %v", value, twice, err)
				}
			}
		})
	})
}

// frameOf is a frame with these fields, its length in as many bytes as it takes.
func frameOf(kind byte, fields []byte) []byte {
	n := uint64(len(fields) + 1)
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(append(b, byte(n), kind), fields...)
}

// rewrite writes what was read; nil for kinds without fields.
func rewrite(value any) []byte {
	switch v := value.(type) {
	case wire.Hello:
		return wire.AppendHello(nil, &v)
	case askOf:
		return wire.AppendAsk(nil, v.ID, v.Again, &v.Ask)
	case answerOf:
		return wire.AppendAnswer(nil, v.ID, &v.Answer)
	case []wire.Alive:
		return wire.AppendAlive(nil, v)
	case onefill.Invalidation:
		return wire.AppendInvalidate(nil, &v)
	case onefill.Ack:
		return wire.AppendAck(nil, &v)
	case refusalOf:
		return wire.AppendRefuse(nil, v.Why, v.Text)
	}
	return nil
}
