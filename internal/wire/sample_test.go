// One frame of each kind, as golden bytes and as seeds of the fuzz tests.

package wire_test

import (
	"bytes"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

// sample is a frame: how it is written, what is read from it, and the zero of what is read.
type sample struct {
	name  string
	kind  wire.Kind
	value any
	write func(b []byte) []byte
	read  func(f *wire.Fields) (any, error)
	zero  any // what a frame without fields is read as
}

type askOf struct {
	ID    uint64
	Again bool
	Ask   onefill.Ask
}

type answerOf struct {
	ID     uint64
	Answer onefill.Answer
}

type refusalOf struct {
	Why  wire.Refusal
	Text string
}

var (
	helloValue  = wire.Hello{Namespace: "shop-prod", ID: "http://10.0.0.3:7946", Incarnation: 0x0102030405060708, Session: 0xf1f2f3f4f5f6f7f8, Clock: 1_000_000, Members: 42}
	askValue    = askOf{300, true, onefill.Ask{Group: "users", Version: "2", Key: "a b\x00\xff", Floor: 7, Have: 1 << 63, Chain: []uint64{1, 1 << 60}, Trace: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Baggage: []string{"tenant", "4"}}}
	answerValue = answerOf{300, onefill.Answer{Status: onefill.StatusValue, Data: "value\x00", Life: 5 * time.Minute, Delta: 450 * time.Millisecond, Number: 9, Vouched: 8, Tags: []string{"t1", ""}, Trace: "00-1", Text: "text", Stack: "stack", Final: true}}
	aliveValue  = []wire.Alive{{ID: 1}, {ID: 2, Waits: []uint64{3, 4}}}
	spreadValue = onefill.Invalidation{Group: "users", Version: "2", Number: 12, Keys: []string{"", "42"}, Trace: "00-1"}
	setValue    = onefill.Invalidation{Group: "users", Number: 13, Keys: []string{"42"}, Value: &onefill.Answer{Status: onefill.StatusValue, Data: "new", Life: time.Second, Number: 13}}
)

func samples() []sample {
	return []sample{
		{"hello", wire.KindHello, helloValue, func(b []byte) []byte { return wire.AppendHello(b, &helloValue) }, readHello, wire.Hello{}},
		{"ask", wire.KindAsk, askValue, func(b []byte) []byte { return wire.AppendAsk(b, askValue.ID, askValue.Again, &askValue.Ask) }, readAsk, askOf{}},
		{"forget", wire.KindForget, uint64(77), func(b []byte) []byte { return wire.AppendForget(b, 77) }, readForget, uint64(0)},
		{"answer", wire.KindAnswer, answerValue, func(b []byte) []byte { return wire.AppendAnswer(b, answerValue.ID, &answerValue.Answer) }, readAnswer, answerOf{}},
		{"alive", wire.KindAlive, aliveValue, func(b []byte) []byte { return wire.AppendAlive(b, aliveValue) }, readAlive, []wire.Alive(nil)},
		{"mark", wire.KindMark, nil, wire.AppendMark, func(*wire.Fields) (any, error) { return nil, nil }, nil},
		{"listen", wire.KindListen, 500 * time.Millisecond, func(b []byte) []byte { return wire.AppendListen(b, 500*time.Millisecond) }, readListen, time.Duration(0)},
		{"invalidate", wire.KindInvalidate, spreadValue, func(b []byte) []byte { return wire.AppendInvalidate(b, &spreadValue) }, readInvalidation, onefill.Invalidation{}},
		{"set", wire.KindInvalidate, setValue, func(b []byte) []byte { return wire.AppendInvalidate(b, &setValue) }, readInvalidation, onefill.Invalidation{}},
		{"ack", wire.KindAck, onefill.Ack{Highest: 14, Members: 43}, func(b []byte) []byte { return wire.AppendAck(b, &onefill.Ack{Highest: 14, Members: 43}) }, readAck, onefill.Ack{}},
		{"leave", wire.KindLeave, nil, wire.AppendLeave, func(*wire.Fields) (any, error) { return nil, nil }, nil},
		{"refuse", wire.KindRefuse, refusalOf{wire.RefusedSelf, "why"}, func(b []byte) []byte { return wire.AppendRefuse(b, wire.RefusedSelf, "why") }, readRefuse, refusalOf{}},
	}
}

func readHello(f *wire.Fields) (any, error) { h, err := f.Hello(&wire.Hello{}); return h, err }

func readAsk(f *wire.Fields) (any, error) {
	id, again, ask, err := f.Ask(&onefill.Ask{})
	return askOf{id, again, *ask}, err
}

func readForget(f *wire.Fields) (any, error) { id, err := f.Forget(); return id, err }

func readAnswer(f *wire.Fields) (any, error) {
	id, a, err := f.Answer()
	return answerOf{id, *a}, err
}

func readAlive(f *wire.Fields) (any, error) {
	var all []wire.Alive
	err := f.Alive(func(a wire.Alive) { all = append(all, a) })
	return all, err
}

func readListen(f *wire.Fields) (any, error) { every, err := f.Listen(); return every, err }

func readInvalidation(f *wire.Fields) (any, error) {
	inv, err := f.Invalidation()
	return *inv, err
}

func readAck(f *wire.Fields) (any, error) { a, err := f.Ack(); return a, err }

func readRefuse(f *wire.Fields) (any, error) {
	why, text, err := f.Refuse()
	return refusalOf{why, text}, err
}

// readers returns how the frames of each kind are read.
func readers() map[wire.Kind]func(*wire.Fields) (any, error) {
	all := make(map[wire.Kind]func(*wire.Fields) (any, error))
	for _, s := range samples() {
		all[s.kind] = s.read
	}
	return all
}

// message is a whole message with these frames.
func message(frames ...[]byte) []byte { return append(wire.Begin(nil), bytes.Join(frames, nil)...) }

// first reads the first frame of a message.
func first(b []byte, max int) (wire.Kind, *wire.Fields, error) {
	return wire.NewReader(bytes.NewReader(b), max).Next()
}

// same compares what was read, with nil and empty alike.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || fmt.Sprintf("%+v", a) == fmt.Sprintf("%+v", b)
}

// slow gives a byte at a time.
type slow struct{ io.Reader }

func (s slow) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return s.Reader.Read(p[:1])
}
