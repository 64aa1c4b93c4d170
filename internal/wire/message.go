// What is in each kind of frame. Fields are only ever added at the end.

package wire

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/onefill/onefill"
)

// Hello says who speaks.
type Hello struct {
	Namespace   string
	ID          string
	Incarnation uint64 // of the process; random
	Session     uint64 // of the asker's link to this peer; answers that come later belong to it
	Clock       uint64 // the highest number that the process has seen
	Members     uint64 // a hash of the member set that it knows
}

// AppendHello appends a hello frame.
func AppendHello(b []byte, h *Hello) []byte {
	b, at := begin(b, KindHello)
	b = appendString(b, h.Namespace)
	b = appendString(b, h.ID)
	b = binary.BigEndian.AppendUint64(b, h.Incarnation)
	b = binary.BigEndian.AppendUint64(b, h.Session)
	b = binary.AppendUvarint(b, h.Clock)
	b = binary.BigEndian.AppendUint64(b, h.Members)
	return end(b, at)
}

// Hello reads the fields of a hello frame. Strings that equal those of last are taken from there.
func (f *Fields) Hello(last *Hello) (h Hello, err error) {
	h.Namespace = f.same(last.Namespace)
	h.ID = f.same(last.ID)
	h.Incarnation = f.uint64()
	h.Session = f.uint64()
	h.Clock = f.uint()
	h.Members = f.uint64()
	return h, f.Err()
}

func (f *Fields) uint64() uint64 {
	if len(f.b) == 0 {
		return 0
	}
	if len(f.b) < 8 {
		f.fail(ErrFormat)
		return 0
	}
	n := binary.BigEndian.Uint64(f.b)
	f.b = f.b[8:]
	return n
}

// AppendAsk appends a question. again says that it was asked before and that the answer is not to be waited for.
func AppendAsk(b []byte, id uint64, again bool, a *onefill.Ask) []byte {
	b, at := begin(b, KindAsk)
	b = binary.AppendUvarint(b, id)
	b = appendFlag(b, again)
	b = appendString(b, a.Group)
	b = appendString(b, a.Version)
	b = appendString(b, a.Key)
	b = binary.AppendUvarint(b, a.Floor)
	b = binary.AppendUvarint(b, a.Have)
	b = appendFixed(b, a.Chain)
	b = appendString(b, a.Trace)
	b = appendStrings(b, a.Baggage)
	return end(b, at)
}

func appendFlag(b []byte, on bool) []byte {
	if on {
		return append(b, 1)
	}
	return append(b, 0)
}

// Ask reads the fields of an ask frame. Group and version are taken from last where they are the same.
func (f *Fields) Ask(last *onefill.Ask) (id uint64, again bool, a *onefill.Ask, err error) {
	id = f.uint()
	again = f.uint()&1 != 0
	a = &onefill.Ask{Group: f.same(last.Group), Version: f.same(last.Version), Key: f.string(), Floor: f.uint(), Have: f.uint()}
	a.Chain = f.fixed()
	a.Trace = f.string()
	a.Baggage = f.strings()
	return id, again, a, f.Err()
}

// AppendForget appends that ask id needs no answer.
func AppendForget(b []byte, id uint64) []byte {
	b, at := begin(b, KindForget)
	return end(binary.AppendUvarint(b, id), at)
}

// Forget reads the field of a forget frame.
func (f *Fields) Forget() (id uint64, err error) { return f.uint(), f.Err() }

// AppendAnswer appends the answer to ask id.
func AppendAnswer(b []byte, id uint64, a *onefill.Answer) []byte {
	b, at := begin(b, KindAnswer)
	b = binary.AppendUvarint(b, id)
	return end(appendAnswer(b, a), at)
}

func appendAnswer(b []byte, a *onefill.Answer) []byte {
	b = binary.AppendUvarint(b, uint64(a.Status))
	b = appendFlag(b, a.Final)
	b = appendString(b, a.Data)
	b = binary.AppendUvarint(b, uint64(max(a.Life, 0)))
	b = binary.AppendUvarint(b, uint64(max(a.Delta, 0)))
	b = binary.AppendUvarint(b, a.Number)
	b = binary.AppendUvarint(b, a.Vouched)
	b = appendStrings(b, a.Tags)
	b = appendString(b, a.Trace)
	b = appendString(b, a.Text)
	return appendString(b, a.Stack)
}

// Answer reads the fields of an answer frame.
func (f *Fields) Answer() (id uint64, a *onefill.Answer, err error) {
	id = f.uint()
	a = f.answer()
	return id, a, f.Err()
}

func (f *Fields) answer() *onefill.Answer {
	a := &onefill.Answer{Status: onefill.Status(f.uint()), Final: f.uint()&1 != 0, Data: f.string(), Life: f.duration(), Delta: f.duration()}
	a.Number, a.Vouched = f.uint(), f.uint()
	a.Tags, a.Trace, a.Text, a.Stack = f.strings(), f.string(), f.string(), f.string()
	return a
}

func (f *Fields) duration() time.Duration { return time.Duration(min(f.uint(), math.MaxInt64/2)) }

// Alive is one ask that is being worked on.
type Alive struct {
	ID    uint64
	Waits []uint64 // the flights that its fill waits for
}

// AppendAlive appends that asks are being worked on.
func AppendAlive(b []byte, all []Alive) []byte {
	b, at := begin(b, KindAlive)
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, a := range all {
		b = binary.AppendUvarint(b, a.ID)
		b = appendFixed(b, a.Waits)
	}
	return end(b, at)
}

// Alive reads the fields of an alive frame and calls each for every ask in it.
func (f *Fields) Alive(each func(Alive)) error {
	n := f.uint()
	if n > uint64(len(f.b)) {
		f.fail(ErrFormat)
	}
	for range n {
		a := Alive{ID: f.uint(), Waits: f.fixed()}
		if f.err != nil {
			break
		}
		each(a)
	}
	return f.Err()
}

// AppendMark appends a mark.
func AppendMark(b []byte) []byte {
	b, at := begin(b, KindMark)
	return end(b, at)
}

// AppendListen appends the wish for a standing stream with an alive frame at least once in every.
func AppendListen(b []byte, every time.Duration) []byte {
	b, at := begin(b, KindListen)
	return end(binary.AppendUvarint(b, uint64(every.Milliseconds())), at)
}

// Listen reads the field of a listen frame.
func (f *Fields) Listen() (every time.Duration, err error) {
	ms := min(f.uint(), uint64(time.Hour/time.Millisecond))
	return time.Duration(ms) * time.Millisecond, f.Err()
}

// AppendInvalidate appends an invalidation.
func AppendInvalidate(b []byte, inv *onefill.Invalidation) []byte {
	b, at := begin(b, KindInvalidate)
	b = appendString(b, inv.Group)
	b = appendString(b, inv.Version)
	b = binary.AppendUvarint(b, inv.Number)
	b = appendStrings(b, inv.Keys)
	b = appendString(b, inv.Trace)
	b = appendFlag(b, inv.Value != nil)
	if inv.Value != nil {
		b = appendAnswer(b, inv.Value)
	}
	return end(b, at)
}

// Invalidation reads the fields of an invalidate frame.
func (f *Fields) Invalidation() (*onefill.Invalidation, error) {
	inv := &onefill.Invalidation{Group: f.string(), Version: f.string(), Number: f.uint(), Keys: f.strings(), Trace: f.string()}
	if f.uint()&1 != 0 {
		inv.Value = f.answer()
	}
	return inv, f.Err()
}

// AppendAck appends the answer to an invalidation.
func AppendAck(b []byte, a *onefill.Ack) []byte {
	b, at := begin(b, KindAck)
	b = binary.AppendUvarint(b, a.Highest)
	b = binary.BigEndian.AppendUint64(b, a.Members)
	return end(b, at)
}

// Ack reads the fields of an ack frame.
func (f *Fields) Ack() (a onefill.Ack, err error) {
	a.Highest = f.uint()
	a.Members = f.uint64()
	return a, f.Err()
}

// AppendLeave appends that the speaker leaves the pool.
func AppendLeave(b []byte) []byte {
	b, at := begin(b, KindLeave)
	return end(b, at)
}

// Refusal is why a request was not looked at.
type Refusal uint8

// The reasons to refuse a request.
const (
	RefusedNamespace Refusal = iota + 1 // the speaker belongs to another namespace
	RefusedSelf                         // the speaker is the listener
	RefusedFormat                       // the request is malformed, or too large
)

// AppendRefuse appends a refusal with a text for a log.
func AppendRefuse(b []byte, why Refusal, text string) []byte {
	b, at := begin(b, KindRefuse)
	b = binary.AppendUvarint(b, uint64(why))
	return end(appendString(b, text), at)
}

// Refuse reads the fields of a refuse frame.
func (f *Fields) Refuse() (why Refusal, text string, err error) {
	return Refusal(f.uint()), f.string(), f.Err()
}
