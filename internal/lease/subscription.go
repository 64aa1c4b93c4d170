// This file is the one connection on which a client hears messages. What they mean, and the timer beside every wait, are the listeners'.

package lease

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/tasks"
)

const (
	quiet    = 3 * time.Second       // after this long without a word the connection is asked for a sign of life; after twice that it is replaced
	linger   = 2 * time.Second       // a channel that nobody follows any more stays subscribed this long: the next one to wait is often near
	retryMin = 50 * time.Millisecond // the pause after a failure, doubling
	retryMax = time.Second           // up to this
)

// News is what a follower of a channel hears: a message, or that messages are heard from now on (and any before may have been missed).
type News struct {
	Payload string
	Joined  bool
}

// Subscription is one connection for any number of channels and followers. It opens with the first follower, and makes itself again after every failure. It is
// safe for concurrent use.
type Subscription struct {
	client redis.UniversalClient
	tasks  *tasks.Set

	mu       sync.Mutex // guards everything below; held neither while talking to Redis nor while calling a follower
	channels map[string]*channel
	pubsub   *redis.PubSub
	running  bool
	changed  chan struct{} // tells the sender that channels has changed
}

// channel is one channel and who follows it.
type channel struct {
	followers map[*follower]struct{}
	asked     bool      // SUBSCRIBE was sent on the present connection
	joined    bool      // and confirmed
	idleSince time.Time // when the last follower left
}

type follower struct{ hear func(News) }

// NewSubscription returns a Subscription whose loops (one that sends, one that hears) run in set and end with it.
func NewSubscription(client redis.UniversalClient, set *tasks.Set) *Subscription {
	return &Subscription{client: client, tasks: set, channels: make(map[string]*channel), changed: make(chan struct{}, 1)}
}

// Follow calls hear for every message on the channel, and with Joined whenever the subscription has been made or made again, until stop is called. hear runs
// on the hearing loop: it must not block. It may still run once after stop has returned.
func (s *Subscription) Follow(name string, hear func(News)) (stop func()) {
	f := &follower{hear}
	s.mu.Lock()
	ch := s.channels[name]
	if ch == nil {
		ch = &channel{followers: make(map[*follower]struct{})}
		s.channels[name] = ch
	}
	ch.followers[f] = struct{}{}
	joined := ch.joined
	if !ch.asked {
		s.start()
		s.nudge()
	}
	s.mu.Unlock()
	if joined {
		hear(News{Joined: true})
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(ch.followers, f)
		if len(ch.followers) == 0 {
			ch.idleSince = time.Now()
			s.nudge()
		}
	}
}

// Listen returns a channel that has something in it after each message on the named channel, and as soon as messages are heard at all: whoever waits listens,
// asks again when woken, and keeps a timer beside. One waiting sign stands for any number of messages.
func (s *Subscription) Listen(name string) (wake <-chan struct{}, stop func()) {
	signs := make(chan struct{}, 1)
	stop = s.Follow(name, func(News) {
		select {
		case signs <- struct{}{}:
		default:
		}
	})
	return signs, stop
}

// Reconnect drops the connection and makes it again: for whoever has proof that it is deaf, such as a message of one's own that did not come back.
func (s *Subscription) Reconnect() {
	s.mu.Lock()
	old := s.pubsub
	s.pubsub = nil
	for _, ch := range s.channels {
		ch.asked, ch.joined = false, false
	}
	s.nudge()
	s.mu.Unlock()
	if old != nil {
		_ = old.Close() // the hearing loop's read fails, and it takes up the next connection
	}
}

// start begins the sending loop once. The caller holds mu.
func (s *Subscription) start() {
	if !s.running {
		s.running = s.tasks.Go(s.send)
	}
}

// nudge wakes the sending loop.
func (s *Subscription) nudge() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// send subscribes to and unsubscribes from channels as followers come and go: the calls can block for as long as a dial does, so no follower makes them.
func (s *Subscription) send(ctx context.Context) {
	idle := time.NewTimer(linger)
	defer idle.Stop()
	for {
		pubsub, join, leave, sweep := s.due(ctx, time.Now())
		if len(join) > 0 {
			_ = pubsub.Subscribe(ctx, join...) // on an error it stays noted, and the hearing loop's next connection subscribes
		}
		if len(leave) > 0 {
			_ = pubsub.Unsubscribe(ctx, leave...)
		}
		idle.Stop()
		if sweep {
			idle.Reset(linger)
		}
		select {
		case <-ctx.Done():
			s.Reconnect() // closes what there is
			return
		case <-s.changed:
		case <-idle.C:
		}
	}
}

// due returns the connection, the channels to subscribe to, those to leave, and whether some will be due to leave later.
func (s *Subscription) due(ctx context.Context, now time.Time) (pubsub *redis.PubSub, join, leave []string, sweep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ch := range s.channels {
		switch {
		case len(ch.followers) == 0 && now.Sub(ch.idleSince) >= linger:
			delete(s.channels, name)
			if ch.asked {
				leave = append(leave, name)
			}
		case len(ch.followers) == 0:
			sweep = true
		case !ch.asked:
			ch.asked = true
			join = append(join, name)
		}
	}
	if s.pubsub == nil && len(join) > 0 {
		s.pubsub = s.client.Subscribe(ctx)
		opened := s.pubsub
		s.tasks.Go(func(ctx context.Context) { s.hear(ctx, opened) })
	}
	if s.pubsub == nil {
		leave = nil
	}
	return s.pubsub, join, leave, sweep
}

// hear receives on one connection object (which reconnects and subscribes again by itself) until it is replaced or the set is closed.
func (s *Subscription) hear(ctx context.Context, pubsub *redis.PubSub) {
	pause, asked := retryMin, false
	for s.current(pubsub) && ctx.Err() == nil {
		message, err := pubsub.ReceiveTimeout(ctx, quiet)
		var timeout net.Error
		switch {
		case err == nil:
			pause, asked = retryMin, false
			s.tell(pubsub, message)
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			_ = pubsub.Ping(ctx)
		case errors.As(err, &timeout) && timeout.Timeout():
			s.Reconnect()
			return
		default:
			asked = false
			s.deaf(pubsub)
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
			pause = min(2*pause, retryMax)
		}
	}
}

// current reports whether pubsub is the connection in use.
func (s *Subscription) current(pubsub *redis.PubSub) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pubsub == pubsub
}

// deaf notes that no channel of this connection is heard until it is confirmed again.
func (s *Subscription) deaf(pubsub *redis.PubSub) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pubsub != pubsub {
		return
	}
	for _, ch := range s.channels {
		ch.joined = false
	}
}

// tell passes a message on to those who follow its channel.
func (s *Subscription) tell(pubsub *redis.PubSub, message any) {
	var name string
	var news News
	switch m := message.(type) {
	case *redis.Message:
		name, news.Payload = m.Channel, m.Payload
	case *redis.Subscription:
		if m.Kind != "subscribe" {
			return
		}
		name, news.Joined = m.Channel, true
	default:
		return
	}
	for _, f := range s.following(pubsub, name, news.Joined) {
		f.hear(news)
	}
}

// following returns the followers of a channel, and notes where the channel has been joined.
func (s *Subscription) following(pubsub *redis.PubSub, name string, joined bool) []*follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.channels[name]
	if ch == nil || s.pubsub != pubsub {
		return nil
	}
	ch.joined = ch.joined || joined
	all := make([]*follower, 0, len(ch.followers))
	for f := range ch.followers {
		all = append(all, f)
	}
	return all
}
