// Hearing what other clusters say, and noticing when nothing is heard any more: each process sends itself a sign of life every second, through the connections
// that carry its commands, and must hear it. A subscription that was left on a server that is no longer the primary answers every PING.

package l2

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/lease"
)

const (
	canaryEvery = time.Second
	canaryGrace = 2 * time.Second // without a sign of life for so long there is a gap
)

// listener is what a Store knows about its hearing.
type listener struct {
	hears chan struct{} // closed when messages are heard for the first time

	mu     sync.Mutex // guards what follows
	joined bool       // messages have been heard once
	last   time.Time  // when the last sign of life was heard
	deaf   bool       // since canaryGrace after last
	gaps   uint64     // how often messages may have been missed
}

// listen starts to hear and to send. It ends with the Store's tasks.
func (s *Store) listen() {
	s.listener.last = time.Now()
	s.heard.Follow(channelOf(s.space), s.hear)
	s.tasks.Go(s.beat)
}

// beat sends a sign of life each second, looks whether the earlier ones were heard, and tries the tier where it is down and nobody else does.
func (s *Store) beat(ctx context.Context) {
	ticker := time.NewTicker(canaryEvery)
	defer ticker.Stop()
	for {
		s.tasks.Go(s.sing)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := time.Now()
		if s.listener.missing(now) {
			s.gap("no message of one's own was heard for 2 s")
			s.heard.Reconnect()
		}
		if s.breaker.due(now) {
			s.tasks.Go(s.probe)
		}
		s.rooms.sweep(now)
	}
}

// sing sends one sign of life. It says nothing about whether the tier is up: a server that refuses writes publishes.
func (s *Store) sing(ctx context.Context) {
	if _, err := s.runner.Run(ctx, scriptPublish, nil, []any{channelOf(s.space), writeCanary(s.sender)}, nil); err != nil && ctx.Err() == nil {
		s.log.Warn("the tier takes no messages", errAttr(err))
	}
}

// hear passes on what other processes say.
func (s *Store) hear(n lease.News) {
	if n.Joined {
		if again, counts := s.listener.join(time.Now()); !again {
			close(s.listener.hears)
		} else if counts {
			s.gap("the subscription was made again")
		}
		return
	}
	m, err := readMessage(n.Payload)
	switch {
	case errors.Is(err, errUnknown): // of a newer release
	case err != nil:
		s.log.Warn("a message cannot be read", errAttr(err))
	case m.kind == kindCanary && m.sender == s.sender:
		s.listener.sign(time.Now())
	case m.kind == kindInvalidate && m.sender != s.sender:
		s.tell(m.invalidation)
	}
}

// gap is called when messages of other clusters may have been missed.
func (s *Store) gap(why string) {
	s.listener.mu.Lock()
	s.listener.gaps++
	s.listener.mu.Unlock()
	s.log.Warn("messages of other clusters may have been missed: " + why)
}

// join notes that messages are heard from now on, and reports whether they were before, and whether some have been missed since that nobody knows of yet.
func (l *listener) join(now time.Time) (again, counts bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	again, counts = l.joined, l.joined && !l.deaf
	l.joined, l.last = true, now
	return again, counts
}

func (l *listener) sign(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.deaf = now, false
}

// missing reports whether a gap has begun.
func (l *listener) missing(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.deaf || now.Sub(l.last) < canaryGrace {
		return false
	}
	l.deaf = true
	return true
}
