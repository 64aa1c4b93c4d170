// The envelope: how an answer is written under a key, and how it is read again, whoever wrote it. Compression and encryption of its body stand in seal.go.
//
//	offset  bytes
//	     0      4  "1fe" and the version, "1"
//	     4     16  the number: decimal, padded with zeros
//	    20     16  the number again: it is given inside Redis, so the checksum cannot cover it
//	    36     13  for how many milliseconds at the end of the key's life the value is stale: decimal, padded with zeros
//	    49      1  the status, as in onefill.Status
//	    50      1  the form of the body: bit 0 compressed, bit 1 encrypted
//	    51      …  the body
//	    -8      8  xxHash64, big end first, of the namespace, group, version and key, each with its length before it in eight bytes, and of the bytes
//	               36 to here
//
// A plain body is a uvarint, the length of the fields, then the fields, then the data. The fields are the duration of the load in microseconds, a uvarint,
// then the load's traceparent, an error's text, its stack, and the number of tags and each tag; strings have their length before them as a uvarint. A reader
// skips fields beyond those that it knows, and takes missing ones as empty. A key's remaining life is how long the value lives: no clock is stored.

package l2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/onefill/onefill"
)

const (
	envelopeMagic = "1fe1"
	numberDigits  = 16
	staleDigits   = 13
	staleAt       = len(envelopeMagic) + 2*numberDigits
	statusAt      = staleAt + staleDigits
	formAt        = statusAt + 1
	bodyAt        = formAt + 1
	checksumBytes = 8

	maxNumber = 9e15 // above it Lua's numbers are no longer exact
)

// The bits of a body's form.
const (
	compressed = 1 << iota
	encrypted
)

var (
	errNotOurs  = errors.New("not a value of onefill, or of a newer release")
	errChecksum = errors.New("damaged, or written for another key")
	errBody     = errors.New("malformed body")
	errNumber   = errors.New("l2: a number is out of range")
)

// envelopes writes and reads envelopes in one namespace. It is safe for concurrent use.
type envelopes struct {
	space string
	seal  *seal
}

// write returns the envelope for an answer. Its number may be filled in later, by a script.
func (v *envelopes) write(k onefill.TierKey, number uint64, a *onefill.Answer) ([]byte, error) {
	if number > maxNumber {
		return nil, errNumber
	}
	fields := make([]byte, 0, 128)
	fields = binary.AppendUvarint(fields, uint64(max(0, a.Delta.Microseconds())))
	fields = appendString(fields, a.Trace)
	fields = appendString(fields, a.Text)
	fields = appendString(fields, a.Stack)
	fields = binary.AppendUvarint(fields, uint64(len(a.Tags)))
	for _, tag := range a.Tags {
		fields = appendString(fields, tag)
	}
	b := make([]byte, 0, bodyAt+len(fields)+len(a.Data)+v.seal.overhead()+checksumBytes+binary.MaxVarintLen32)
	b = append(b, envelopeMagic...)
	b = appendNumber(b, number)
	b = appendNumber(b, number)
	b = append(b, "0000000000000"...) // no value is stale yet
	b = append(b, byte(a.Status), 0)
	b = binary.AppendUvarint(b, uint64(len(fields)))
	b = append(b, fields...)
	b = append(b, a.Data...)
	b = v.seal.close(b, v.bound(k))
	return binary.BigEndian.AppendUint64(b, v.checksum(k, string(b[staleAt:]))), nil
}

// number returns the number of an envelope, and false if it is none.
func number(envelope string) (uint64, bool) {
	if len(envelope) < bodyAt+checksumBytes || envelope[:len(envelopeMagic)] != envelopeMagic {
		return 0, false
	}
	first, again := envelope[len(envelopeMagic):len(envelopeMagic)+numberDigits], envelope[len(envelopeMagic)+numberDigits:staleAt]
	n, err := strconv.ParseUint(first, 10, 64)
	return n, err == nil && n <= maxNumber && first == again
}

// read returns the answer in an envelope. Its Data shares memory with the envelope where the body is plain.
func (v *envelopes) read(k onefill.TierKey, envelope string) (*onefill.Answer, error) {
	n, ok := number(envelope)
	if !ok {
		return nil, errNotOurs
	}
	end := len(envelope) - checksumBytes
	if v.checksum(k, envelope[staleAt:end]) != binary.BigEndian.Uint64([]byte(envelope[end:])) {
		return nil, errChecksum
	}
	body, err := v.seal.open(envelope[:end], v.bound(k))
	if err != nil {
		return nil, err
	}
	a, err := readBody(body)
	if err != nil {
		return nil, err
	}
	a.Status, a.Number, a.Vouched = onefill.Status(envelope[statusAt]), n, n
	return a, nil
}

func readBody(body string) (*onefill.Answer, error) {
	length, body, ok := cutUvarint(body)
	if !ok || length > uint64(len(body)) {
		return nil, errBody
	}
	f := fields{rest: body[:length]}
	a := &onefill.Answer{Data: body[length:]}
	a.Delta = time.Duration(min(f.uint(), 1<<40)) * time.Microsecond
	a.Trace, a.Text, a.Stack = f.string(), f.string(), f.string()
	a.Tags = f.strings()
	if f.broken {
		return nil, errBody
	}
	return a, nil
}

// checksum is over the whole address of an entry and everything in the envelope that is not filled in by a script.
func (v *envelopes) checksum(k onefill.TierKey, rest string) uint64 {
	var d xxhash.Digest
	d.Reset()
	for _, s := range [...]string{v.space, k.Group, k.Version, k.Key} {
		digest(&d, s)
	}
	_, _ = d.WriteString(rest) // never fails
	return d.Sum64()
}

// bound is what an encrypted body is bound to beside its header: it opens under no other key.
func (v *envelopes) bound(k onefill.TierKey) []byte {
	if len(v.seal.keys) == 0 {
		return nil
	}
	var b []byte
	for _, s := range [...]string{v.space, k.Group, k.Version, k.Key} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	return b
}

// appendNumber appends a number as scripts want it.
func appendNumber(b []byte, n uint64) []byte {
	for unit := uint64(1e15); unit > 0; unit /= 10 {
		b = append(b, byte('0'+n/unit%10))
	}
	return b
}

// digits is a number as scripts want it.
func digits(n uint64) string {
	if n == 0 {
		return "0000000000000000"
	}
	return string(appendNumber(make([]byte, 0, numberDigits), n))
}

func appendString[S ~string | ~[]byte](b []byte, s S) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// fields reads one field after the other. What is missing at the end is zero.
type fields struct {
	rest   string
	broken bool
}

func (f *fields) uint() uint64 {
	if f.rest == "" {
		return 0
	}
	n, rest, ok := cutUvarint(f.rest)
	f.rest, f.broken = rest, f.broken || !ok
	return n
}

func (f *fields) string() string {
	n := f.uint()
	if n > uint64(len(f.rest)) {
		f.rest, f.broken = "", true
		return ""
	}
	s := f.rest[:n]
	f.rest = f.rest[n:]
	return s
}

func (f *fields) strings() []string {
	n := f.uint()
	if n > uint64(len(f.rest)) { // a string takes at least its length
		f.rest, f.broken = "", true
	}
	if n == 0 || f.broken {
		return nil
	}
	all := make([]string, 0, min(n, 1024))
	for range n {
		if f.rest == "" {
			f.broken = true
		}
		all = append(all, f.string())
	}
	return all
}

// cutUvarint takes a uvarint from the front of s.
func cutUvarint(s string) (n uint64, rest string, ok bool) {
	var head [binary.MaxVarintLen64]byte
	n, used := binary.Uvarint(head[:copy(head[:], s)])
	if used <= 0 {
		return 0, "", false
	}
	return n, s[used:], true
}

// unreadable says why a value is treated as absent.
func unreadable(err error) error { return fmt.Errorf("l2: a value cannot be read: %w", err) }
