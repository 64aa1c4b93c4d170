// This file is the token with which a lease changes hands, and Adopt, which takes it up.

package lock

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// tokenParts is what a token says, in the order in which it says it.
type tokenParts struct {
	kind   kind
	op     op
	ttl    time.Duration
	fence  uint64
	secret string
	name   string
}

const tokenVersion = "1"

func formatToken(p tokenParts) string {
	return strings.Join([]string{
		tokenVersion, string(p.kind), strconv.Itoa(int(p.op)), strconv.FormatInt(p.ttl.Milliseconds(), 10), strconv.FormatUint(p.fence, 10),
		p.secret, base64.RawURLEncoding.EncodeToString([]byte(p.name)),
	}, ".")
}

// parseToken returns what a token says, or ErrInvalid for one that no lease could have given.
func parseToken(token string) (p tokenParts, err error) {
	invalid := fmt.Errorf("%w: not a lease's token", ErrInvalid) // which is a secret, and not repeated
	fields := strings.Split(token, ".")
	if len(fields) != 7 || fields[0] != tokenVersion {
		return p, invalid
	}
	o, err1 := strconv.Atoi(fields[2])
	ms, err2 := strconv.ParseInt(fields[3], 10, 32)
	fence, err3 := strconv.ParseUint(fields[4], 10, 53)
	name, err4 := base64.RawURLEncoding.DecodeString(fields[6])
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
		return p, invalid
	}
	p = tokenParts{kind(fields[1]), op(o), time.Duration(ms) * time.Millisecond, fence, fields[5], string(name)}
	if checkName(p.name) != nil || checkTTL("", p.ttl) != nil || len(p.secret) != len(rand.Text()) || !p.op.leases(p.kind) {
		return p, invalid
	}
	return p, nil
}

// leases reports whether the op takes leases of the kind.
func (o op) leases(k kind) bool {
	switch o {
	case opMutex:
		return k == kindMutex
	case opWrite, opRead:
		return k == kindRW
	case opPermit:
		return k == kindSemaphore
	}
	return false
}

// Adopt takes over the lease whose Token another process handed on, with its fence; from then on it is this Client's to renew and release, and the other
// side's lease is lost. ctx bounds the question, and its values go into the lease's Context. Errors: ErrInvalid for anything that is no token, ErrNotHeld
// when the lease has ended, was adopted before, or is unknown under this Client's Redis and Prefix, ErrClosed, ErrUnavailable, or ctx's own.
func (c *Client) Adopt(ctx context.Context, token string) (*Lease, error) {
	p, err := parseToken(token)
	if err != nil {
		return nil, err
	}
	if c.closed() {
		return nil, ErrClosed
	}
	a := ask{op: p.op, room: newRoom(c.config.Prefix, p.kind, p.name), token: rand.Text(), ttl: p.ttl}
	sent := time.Now()
	adopted, err := c.store.adopt(ctx, holding{room: a.room, token: a.token, ttl: a.ttl}, p.secret)
	if err != nil {
		return nil, storeError(ctx, err)
	}
	if !adopted {
		return nil, ErrNotHeld
	}
	c.saw(a.room, p.fence)
	t := newTenure(c, a, p.fence, sent)
	if a.op == opMutex {
		if t.turn, _ = c.queue.TryEnter(a.room.id()); t.turn != nil {
			t.turn.Hold()
		}
	}
	return t.keep(ctx)
}
