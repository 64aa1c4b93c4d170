// Package wire is the language of peers: versioned messages of binary frames. This file holds the frames themselves, how they are told apart and bounded;
// message.go holds what is in them. It knows neither HTTP nor what anybody does with a message.
//
// A message is four bytes, "1fl" and the version, then frames until its end. A frame is a uvarint, the length of what follows; a byte, its kind; and its
// fields in a fixed order. Integers are uvarints, digests and flight IDs eight bytes, big end first, strings a uvarint length and their bytes. A reader skips
// frames of kinds that it does not know and fields beyond those that it knows, and takes fields that are missing at a frame's end as zero: so a release may
// add both without a new version.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Version is the version that this release speaks.
const Version = 1

const magic = "1fl"

// Kind is the kind of a frame.
type Kind byte

// The kinds of frames.
const (
	KindHello      Kind = iota + 1 // who speaks; first in every message
	KindAsk                        // a question for a key
	KindForget                     // the asker wants no answer any more
	KindAnswer                     // the answer to an ask
	KindAlive                      // asks that are being worked on, and what their fills wait for
	KindMark                       // what could be answered at once has been
	KindListen                     // the response is to stay open for answers
	KindInvalidate                 // an invalidation
	KindAck                        // the answer to an invalidation
	KindLeave                      // the speaker leaves the pool
	KindRefuse                     // why the request was not even looked at
)

var (
	// ErrFormat says that bytes are no message, or not one of a version that this release knows.
	ErrFormat = errors.New("wire: not a onefill message")
	// ErrTooLarge says that a frame is longer than the reader allows, or has a list of more than MaxStrings.
	ErrTooLarge = errors.New("wire: frame too large")
)

// MaxStrings bounds the strings of one list: each takes a byte on the wire and sixteen in memory, so that the length of a frame alone bounds too little.
const MaxStrings = 1 << 16

// Begin appends the beginning of a message.
func Begin(b []byte) []byte { return append(append(b, magic...), Version) }

// begin appends room for a frame's length and its kind; end fills the length in. Lengths below 16 KiB take two bytes, longer ones are moved by two.
func begin(b []byte, k Kind) (_ []byte, start int) {
	return append(b, 0, 0, byte(k)), len(b)
}

func end(b []byte, start int) []byte {
	n := len(b) - start - 2
	if n < 1<<14 {
		b[start], b[start+1] = byte(n)|0x80, byte(n>>7)
		return b
	}
	var length [binary.MaxVarintLen64]byte
	used := binary.PutUvarint(length[:], uint64(n))
	b = append(b, length[:used-2]...) // grow by what two bytes do not hold
	copy(b[start+used:], b[start+2:len(b)-(used-2)])
	copy(b[start:], length[:used])
	return b
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, all []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, s := range all {
		b = appendString(b, s)
	}
	return b
}

func appendFixed(b []byte, all []uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(all)))
	for _, n := range all {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return b
}

// Reader reads the frames of one message. Its memory grows with what has arrived, never with what a length promises.
type Reader struct {
	in      *bufio.Reader
	max     int // bytes of one frame
	payload []byte
	begun   bool
	fields  Fields
}

// NewReader returns a Reader that refuses frames longer than max bytes.
func NewReader(in io.Reader, max int) *Reader {
	return &Reader{in: bufio.NewReaderSize(in, 4<<10), max: max}
}

// Reset makes r read another message, with the memory that it has.
func (r *Reader) Reset(in io.Reader, max int) {
	r.in.Reset(in)
	r.max, r.begun = max, false
	if cap(r.payload) > keepBuffer {
		r.payload = nil
	}
}

// keepBuffer is the largest buffer that a Reader keeps for the next message.
const keepBuffer = 64 << 10

// Next returns the next frame. Its fields are valid until Next is called again. The error is io.EOF where the message ends, io.ErrUnexpectedEOF where it
// breaks off, ErrFormat, ErrTooLarge, or the reader's own.
func (r *Reader) Next() (Kind, *Fields, error) {
	if !r.begun {
		if err := r.start(); err != nil {
			return 0, nil, err
		}
	}
	length, err := binary.ReadUvarint(r.in)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return 0, nil, err
	case err != nil:
		return 0, nil, unless(err, ErrFormat)
	case length == 0:
		return 0, nil, fmt.Errorf("%w: a frame without a kind", ErrFormat)
	case length > uint64(r.max):
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLarge, length, r.max)
	}
	if err := r.fill(int(length)); err != nil {
		return 0, nil, err
	}
	r.fields = Fields{b: r.payload[1:]}
	return Kind(r.payload[0]), &r.fields, nil
}

func (r *Reader) start() error {
	r.begun = true
	var head [len(magic) + 1]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return unless(err, ErrFormat)
	}
	if string(head[:len(magic)]) != magic {
		return ErrFormat
	}
	if v := head[len(magic)]; v != Version {
		return fmt.Errorf("%w: version %d, this release speaks %d", ErrFormat, v, Version)
	}
	return nil
}

// chunk is by how much a frame's buffer grows while the frame arrives.
const chunk = 64 << 10

func (r *Reader) fill(length int) error {
	r.payload = r.payload[:0]
	for len(r.payload) < length {
		n := min(length-len(r.payload), chunk)
		if need := len(r.payload) + n; cap(r.payload) < need {
			grown := make([]byte, len(r.payload), max(min(2*cap(r.payload), length), need))
			copy(grown, r.payload)
			r.payload = grown
		}
		at := len(r.payload)
		r.payload = r.payload[:at+n]
		if _, err := io.ReadFull(r.in, r.payload[at:]); err != nil {
			return unless(err, io.ErrUnexpectedEOF)
		}
	}
	return nil
}

// unless returns instead for the errors that mean that bytes are missing or malformed, and other errors as they are.
func unless(err, instead error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || err.Error() == "binary: varint overflows a 64-bit integer" {
		return instead
	}
	return err
}

// Fields are what is in a frame, read one after the other. A field that is missing because the frame ends before it is zero; one that is broken makes Err
// return why.
type Fields struct {
	b   []byte
	err error
}

// Err returns ErrFormat if a field was broken, ErrTooLarge if one was a list that is too long.
func (f *Fields) Err() error { return f.err }

func (f *Fields) fail(err error) {
	f.err, f.b = err, nil
}

func (f *Fields) uint() uint64 {
	if len(f.b) == 0 {
		return 0
	}
	n, used := binary.Uvarint(f.b)
	if used <= 0 {
		f.fail(ErrFormat)
		return 0
	}
	f.b = f.b[used:]
	return n
}

// bytes returns the next string's bytes; they are valid as long as the frame is.
func (f *Fields) bytes() []byte {
	n := f.uint()
	if n > uint64(len(f.b)) {
		f.fail(ErrFormat)
		return nil
	}
	s := f.b[:n]
	f.b = f.b[n:]
	return s
}

func (f *Fields) string() string { return string(f.bytes()) }

// same is string, but gives last back if it is the same, instead of a copy.
func (f *Fields) same(last string) string {
	if b := f.bytes(); string(b) != last {
		return string(b)
	}
	return last
}

func (f *Fields) strings() []string {
	n := f.uint()
	switch {
	case n > uint64(len(f.b)): // a string takes at least its length
		f.fail(ErrFormat)
		return nil
	case n > MaxStrings:
		f.fail(fmt.Errorf("%w: a list of %d strings, at most %d are allowed", ErrTooLarge, n, MaxStrings))
		return nil
	case n == 0:
		return nil
	}
	all := make([]string, 0, min(n, 1024))
	for range n {
		all = append(all, f.string())
	}
	return all
}

func (f *Fields) fixed() []uint64 {
	n := f.uint()
	if n > uint64(len(f.b))/8 {
		f.fail(ErrFormat)
		return nil
	}
	if n == 0 {
		return nil
	}
	all := make([]uint64, n)
	for i := range all {
		all[i] = binary.BigEndian.Uint64(f.b)
		f.b = f.b[8:]
	}
	return all
}
