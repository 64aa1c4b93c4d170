// Waiting for another process's load: a room for each key that someone in this process waits for. The subscription that wakes them is internal/lease's.

package l2

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/lease"
)

const (
	pollEvery  = 500 * time.Millisecond // who waits asks again after this long, whatever it hears
	pollJitter = 50 * time.Millisecond  // and, where a lease runs out before, up to this long after its end, so that not everyone asks at once
	roomLinger = 2 * time.Second        // how long a room stays when nobody is in it: the next to wait comes soon
)

// Wait implements onefill.Tier. It subscribes to the key's channel, returns once to let the caller ask again, since the wake may have been sent before, and waits
// from then on; always with a timer beside. A message that is lost costs at most 500 ms.
func (s *Store) Wait(ctx context.Context, key onefill.TierKey, held onefill.ClaimReply) error {
	r := s.rooms.enter(nameOf(s.space, key).claim)
	defer s.rooms.leave(r)
	news := s.rooms.news(r, held.Fence)
	if news == nil {
		return ctx.Err()
	}
	timer := time.NewTimer(min(held.Left+rand.N(pollJitter), pollEvery))
	defer timer.Stop()
	select {
	case <-news:
	case <-timer.C:
	case <-s.tasks.Context().Done():
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// rooms are the keys that this process waits for.
type rooms struct {
	subscription *lease.Subscription

	mu  sync.Mutex // guards what follows and every room; not held while the subscription is called
	all map[string]*room
}

// room is where those are who wait for one key.
type room struct {
	inside    int
	left      time.Time // by the last of them
	stop      func()    // ends the subscription; nil until it has been made
	joined    bool      // messages are heard
	heard     uint64    // how many
	confirmed uint64    // a fence that was still held according to an answer to a question sent after the last message: no wake for it was missed
	news      chan struct{}
}

// enter takes a place in the room of a channel.
func (rs *rooms) enter(channel string) *room {
	rs.mu.Lock()
	r := rs.all[channel]
	if r != nil {
		r.inside++
		rs.mu.Unlock()
		return r
	}
	r = &room{inside: 1, news: make(chan struct{})}
	if rs.all == nil {
		rs.all = make(map[string]*room)
	}
	rs.all[channel] = r
	rs.mu.Unlock()
	stop := rs.subscription.Follow(channel, func(n lease.News) { rs.hear(r, n) })
	rs.mu.Lock()
	r.stop = stop
	rs.mu.Unlock()
	return r
}

func (rs *rooms) leave(r *room) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.inside--
	r.left = time.Now()
}

// hear wakes everyone in the room.
func (rs *rooms) hear(r *room, n lease.News) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r.joined = r.joined || n.Joined
	r.heard++
	r.confirmed = 0
	close(r.news)
	r.news = make(chan struct{})
}

// news returns what is closed at the next message, or nil where a wake for fence may have been missed.
func (rs *rooms) news(r *room, fence uint64) <-chan struct{} {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.joined && r.confirmed != fence {
		return nil
	}
	return r.news
}

// seen is to be called before a question is sent; its result goes to confirm.
func (rs *rooms) seen(channel string) (heard uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.all[channel]; r != nil {
		return r.heard
	}
	return 0
}

// confirm notes that fence is held according to the answer to a question that was sent when heard messages had been heard.
func (rs *rooms) confirm(channel string, heard, fence uint64) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.all[channel]; r != nil && r.joined && r.heard == heard {
		r.confirmed = fence
	}
}

// sweep closes the rooms in which nobody has been for a while.
func (rs *rooms) sweep(now time.Time) {
	var stops []func()
	rs.mu.Lock()
	for channel, r := range rs.all {
		if r.inside == 0 && r.stop != nil && now.Sub(r.left) > roomLinger {
			stops = append(stops, r.stop)
			delete(rs.all, channel)
		}
	}
	rs.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
}
