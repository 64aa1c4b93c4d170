// Spreading invalidations: each goes to every member, and many that are on their way to one member at once share requests.

package peers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

const (
	// tellTimeout bounds what one silent member costs an invalidation or a farewell.
	tellTimeout = time.Second
	// maxTells bounds the requests with invalidations to one member that are under way at once, so that they leave connections to the fetches. What comes
	// meanwhile travels together in the next one.
	maxTells = 8
)

// told is an invalidation on its way to one member.
type told struct {
	peer  string
	frame []byte
	ctx   context.Context // of who waits for it
	ack   onefill.Ack     // set before done is closed
	done  chan struct{}
}

// Spread implements onefill.Peers. Members that have left are not asked; those that count as dead are tried all the same. A caller that gives up stops nothing,
// because what is half done leaves old values behind: it returns within a second in any case.
func (p *Pool) Spread(ctx context.Context, inv *onefill.Invalidation) []onefill.Ack {
	if p.mesh() == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
	defer cancel()
	frame := wire.AppendInvalidate(nil, inv)
	var all []*told
	for _, l := range p.view.Load().links {
		if l.concerned() {
			t := &told{peer: l.id, frame: frame, ctx: ctx, done: make(chan struct{})}
			l.tell(t)
			all = append(all, t)
		}
	}
	acks := make([]onefill.Ack, len(all))
	for i, t := range all {
		acks[i] = t.wait()
	}
	return acks
}

// wait returns the member's answer, or that there is none in time.
func (t *told) wait() onefill.Ack {
	select {
	case <-t.done:
		return t.ack
	case <-t.ctx.Done():
	}
	select {
	case <-t.done: // while another member kept the caller waiting
		return t.ack
	default:
		return onefill.Ack{Peer: t.peer, Err: fmt.Errorf("peers: %s did not acknowledge: %w", t.peer, t.ctx.Err())}
	}
}

// concerned reports whether the member may hold values: not if it has left or is this process itself.
func (l *link) concerned() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status != left && !l.mirror
}

// tell sends an invalidation to the member, with the next request if as many as may be are under way.
func (l *link) tell(t *told) {
	l.mu.Lock()
	l.untold = append(l.untold, t)
	more := l.tells < maxTells
	if more {
		l.tells++
	}
	l.mu.Unlock()
	if more && !l.pool.tasks.Go(l.sendUntold) {
		for batch := l.nextUntold(); len(batch) > 0; batch = l.nextUntold() {
			for _, t := range batch {
				t.fail(onefill.ErrClosed)
			}
		}
	}
}

// nextUntold takes the invalidations for one request. Where there are none it ends the sender.
func (l *link) nextUntold() (batch []*told) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for len(l.untold) > 0 && size < maxGather {
		t := l.untold[0]
		l.untold = l.untold[1:]
		if t.ctx.Err() == nil { // else nobody waits for it any more
			batch = append(batch, t)
			size += len(t.frame)
		}
	}
	if len(batch) == 0 {
		l.untold = nil
		l.tells--
	}
	return batch
}

// sendUntold sends what waits, request by request, until nothing does.
func (l *link) sendUntold(ctx context.Context) {
	for batch := l.nextUntold(); len(batch) > 0; batch = l.nextUntold() {
		b := newBody(l.hello())
		for _, t := range batch {
			b.b = append(b.b, t.frame...)
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellTimeout)
		err := l.exchange(bounded, b, func(k wire.Kind, f *wire.Fields) error {
			if k != wire.KindAck || len(batch) == 0 {
				return nil
			}
			ack, err := f.Ack()
			if err == nil { // they come in the order of the invalidations
				batch[0].acknowledge(ack)
				batch = batch[1:]
			}
			return err
		})
		cancel()
		if err == nil {
			err = errors.New("it did not acknowledge")
		}
		for _, t := range batch {
			t.fail(err)
		}
	}
}

func (t *told) acknowledge(ack onefill.Ack) {
	ack.Peer = t.peer
	t.ack = ack
	close(t.done)
}

func (t *told) fail(err error) {
	t.acknowledge(onefill.Ack{Err: fmt.Errorf("peers: %s: %w", t.peer, err)})
}
