// What the clusters of a namespace say to each other, over one plain channel: invalidations, and each process to itself that it still hears. How messages are
// sent and heard stands in invalidate.go and listen.go.
//
//	offset  bytes
//	     0      3  "1fm"
//	     3      1  the version, "1"
//	     4      1  the kind: "i" an invalidation, "c" a sign of life
//	     5     16  the number: decimal, padded with zeros; given inside Redis
//	    21     16  who speaks: 16 hex digits, different for each process
//	    37      …  of an invalidation: group, version, traceparent, the number of keys and each key; strings have their length before them, all lengths and
//	               numbers are uvarints
//
// A reader skips messages of a version or a kind that it does not know, and what follows the fields that it knows.

package l2

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/onefill/onefill"
)

const (
	messageMagic  = "1fm1"
	messageSender = len(messageMagic) + 1 + numberDigits
	messageBody   = messageSender + 16

	kindInvalidate = 'i'
	kindCanary     = 'c'
)

// maxMessage is the size above which the keys of an invalidation are spread over several messages: Redis cuts off who is slow to read large ones.
const maxMessage = 1 << 20

var (
	errMessage = errors.New("l2: not a message of onefill")
	errUnknown = errors.New("l2: a message of a kind or version that this release does not know")
)

// message is one message as it was heard.
type message struct {
	kind         byte
	sender       string
	invalidation *onefill.Invalidation // of kindInvalidate
}

// senderOf writes a process's name in messages.
func senderOf(id uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], id)
	return hex.EncodeToString(b[:])
}

// writeCanary is a sign of life.
func writeCanary(sender string) string { return messageMagic + string(kindCanary) + digits(0) + sender }

// writeInvalidation returns the message for some keys of an invalidation. A script fills in the number where it is not known yet.
func writeInvalidation(sender string, inv *onefill.Invalidation, keys []string) string {
	b := append([]byte(messageMagic), kindInvalidate)
	b = appendNumber(b, inv.Number)
	b = append(b, sender...)
	b = appendString(b, inv.Group)
	b = appendString(b, inv.Version)
	b = appendString(b, inv.Trace)
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, key := range keys {
		b = appendString(b, key)
	}
	return string(b)
}

// readMessage reads a message. It returns errMessage for what is none, and errUnknown for what a newer release says.
func readMessage(s string) (message, error) {
	if len(s) < len(messageMagic) || s[:3] != messageMagic[:3] {
		return message{}, errMessage
	}
	if s[3] != messageMagic[3] {
		return message{}, errUnknown
	}
	if len(s) < messageBody {
		return message{}, errMessage
	}
	number, err := strconv.ParseUint(s[len(messageMagic)+1:messageSender], 10, 64)
	if err != nil || number > maxNumber {
		return message{}, errMessage
	}
	m := message{kind: s[len(messageMagic)], sender: s[messageSender:messageBody]}
	switch m.kind {
	case kindCanary:
		return m, nil
	case kindInvalidate:
	default:
		return message{}, errUnknown
	}
	f := fields{rest: s[messageBody:]}
	m.invalidation = &onefill.Invalidation{Number: number, Group: f.string(), Version: f.string(), Trace: f.string(), Keys: f.strings()}
	if f.broken {
		return message{}, errMessage
	}
	return m, nil
}
