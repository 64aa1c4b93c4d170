// This file is the store inside one process: the same questions as Redis answers, under a mutex. Each answers as the script of the same name does.

package lock

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"
)

// localStore keeps leases in this process.
type localStore struct {
	mu        sync.Mutex // guards everything below
	rooms     map[string]*localRoom
	sweepAt   int // how many rooms there may be before the empty ones are thrown out
	fence     uint64
	listeners map[string]map[chan struct{}]struct{}
}

// localRoom is what stands under the keys of one room.
type localRoom struct {
	holder, intent, upgrade, done entry
	sharers                       map[string]time.Time

	tokens float64 // of a Throttle, at the moment at
	at     time.Time
	full   time.Time // when the bucket is full again, and need not be remembered

	count int64 // of an Average
	total float64
	until time.Time
}

// entry is a value that ends by itself.
type entry struct {
	value string
	ends  time.Time
}

func (e entry) at(now time.Time) string {
	if now.Before(e.ends) {
		return e.value
	}
	return ""
}

func newLocalStore() *localStore {
	return &localStore{rooms: make(map[string]*localRoom), sweepAt: 64, listeners: make(map[string]map[chan struct{}]struct{})}
}

// enter locks the store and returns the room, free of what has ended. Whoever calls it unlocks mu.
func (s *localStore) enter(r room) (*localRoom, time.Time) {
	s.mu.Lock()
	now := time.Now()
	if len(s.rooms) >= s.sweepAt {
		maps.DeleteFunc(s.rooms, func(_ string, l *localRoom) bool { return l.empty(now) })
		s.sweepAt = max(64, 2*len(s.rooms))
	}
	l := s.rooms[r.id()]
	if l == nil {
		l = &localRoom{}
		s.rooms[r.id()] = l
	}
	l.expire(now)
	return l, now
}

func (l *localRoom) expire(now time.Time) {
	maps.DeleteFunc(l.sharers, func(_ string, ends time.Time) bool { return !now.Before(ends) })
}

func (l *localRoom) empty(now time.Time) bool {
	l.expire(now)
	for _, ends := range []time.Time{l.holder.ends, l.intent.ends, l.upgrade.ends, l.done.ends, l.full, l.until} {
		if now.Before(ends) {
			return false
		}
	}
	return len(l.sharers) == 0
}

func (l *localRoom) share(token string, ends time.Time) {
	if l.sharers == nil {
		l.sharers = make(map[string]time.Time)
	}
	l.sharers[token] = ends
}

// left returns the time until the first sharer's lease ends.
func (l *localRoom) left(now time.Time) time.Duration {
	var first time.Duration
	for _, ends := range l.sharers {
		if d := ends.Sub(now); first == 0 || d < first {
			first = d
		}
	}
	return first
}

func (s *localStore) take(_ context.Context, a ask) (answer, error) {
	l, now := s.enter(a.room)
	defer s.mu.Unlock()
	ends := now.Add(a.ttl)
	var blocked answer
	var free bool
	switch a.op {
	case opMutex, opOnce:
		blocked, free = l.blocksMutex(a, now)
	case opWrite:
		blocked, free = l.blocksWriter(a, now)
	case opRead:
		blocked, free = l.blocksReader(a, now)
	case opPermit:
		_, mine := l.sharers[a.token]
		blocked, free = answer{left: l.left(now)}, mine || len(l.sharers) < a.n
	case opUpgrade:
		blocked, free = l.blocksUpgrade(a, now)
	}
	if !free {
		return blocked, nil
	}
	if a.op.exclusive() {
		l.holder = entry{a.token, ends}
	} else {
		l.share(a.token, ends)
	}
	s.fence = max(s.fence+1, a.floor+1, uint64(now.UnixMicro()))
	return answer{state: stateGranted, fence: s.fence}, nil
}

func (l *localRoom) blocksMutex(a ask, now time.Time) (answer, bool) {
	if a.op == opOnce && l.done.at(now) != "" {
		return answer{state: stateDone}, false
	}
	holder := l.holder.at(now)
	return answer{left: l.holder.ends.Sub(now)}, holder == "" || holder == a.token
}

func (l *localRoom) blocksWriter(a ask, now time.Time) (answer, bool) {
	holder, intent := l.holder.at(now), l.intent.at(now)
	if (holder != "" && holder != a.token) || len(l.sharers) > 0 {
		if a.waits && (intent == "" || intent == a.token) {
			l.intent = entry{a.token, now.Add(a.ttl)}
		}
		if len(l.sharers) > 0 {
			return answer{left: l.left(now)}, false
		}
		return answer{left: l.holder.ends.Sub(now)}, false
	}
	if intent == a.token {
		l.intent = entry{}
	}
	return answer{}, true
}

func (l *localRoom) blocksReader(a ask, now time.Time) (answer, bool) {
	if _, mine := l.sharers[a.token]; mine {
		return answer{}, true
	}
	for _, e := range []entry{l.holder, l.upgrade, l.intent} {
		if e.at(now) != "" {
			return answer{left: e.ends.Sub(now)}, false
		}
	}
	return answer{}, true
}

func (l *localRoom) blocksUpgrade(a ask, now time.Time) (answer, bool) {
	if l.holder.at(now) != a.token {
		if _, mine := l.sharers[a.token]; !mine {
			return answer{state: stateLost}, false
		}
		if other := l.upgrade.at(now); other != "" && other != a.token {
			return answer{state: stateConflict}, false
		}
		if len(l.sharers) > 1 {
			l.upgrade = entry{a.token, now.Add(a.ttl)}
			return answer{left: l.left(now)}, false
		}
	}
	clear(l.sharers)
	l.upgrade = entry{}
	return answer{}, true
}

func (s *localStore) renew(_ context.Context, _ time.Duration, all []holding) ([]bool, error) {
	kept := make([]bool, len(all))
	for i, h := range all {
		l, now := s.enter(h.room)
		if l.holder.at(now) == h.token {
			l.holder.ends, kept[i] = now.Add(h.ttl), true
		} else if _, mine := l.sharers[h.token]; mine {
			l.sharers[h.token], kept[i] = now.Add(h.ttl), true
		}
		s.mu.Unlock()
	}
	return kept, nil
}

func (s *localStore) leave(_ context.Context, h holding) (bool, error) {
	l, now := s.enter(h.room)
	defer s.mu.Unlock()
	_, shared := l.sharers[h.token]
	alone := l.holder.at(now) == h.token
	if !shared && !alone {
		return false, nil
	}
	if alone {
		l.holder = entry{}
	}
	delete(l.sharers, h.token)
	s.wake(h.room)
	if l.empty(now) {
		delete(s.rooms, h.room.id())
	}
	return true, nil
}

func (s *localStore) withdraw(_ context.Context, h holding) error {
	l, now := s.enter(h.room)
	defer s.mu.Unlock()
	for _, e := range []*entry{&l.intent, &l.upgrade} {
		if e.at(now) == h.token {
			*e = entry{}
			s.wake(h.room)
		}
	}
	return nil
}

func (s *localStore) downgrade(_ context.Context, h holding) (bool, error) {
	l, now := s.enter(h.room)
	defer s.mu.Unlock()
	if l.holder.at(now) == h.token {
		l.holder = entry{}
		l.share(h.token, now.Add(h.ttl))
		s.wake(h.room)
		return true, nil
	}
	_, mine := l.sharers[h.token]
	return mine, nil
}

func (s *localStore) adopt(_ context.Context, h holding, from string) (bool, error) {
	l, now := s.enter(h.room)
	defer s.mu.Unlock()
	if l.holder.at(now) == from {
		l.holder = entry{h.token, now.Add(h.ttl)}
		return true, nil
	}
	if _, there := l.sharers[from]; !there {
		return false, nil
	}
	delete(l.sharers, from)
	l.share(h.token, now.Add(h.ttl))
	return true, nil
}

func (s *localStore) settle(_ context.Context, h holding, window time.Duration) (bool, error) {
	l, now := s.enter(h.room)
	defer s.mu.Unlock()
	if l.holder.at(now) != h.token {
		return l.done.at(now) == h.token, nil
	}
	l.holder, l.done = entry{}, entry{h.token, now.Add(window)}
	s.wake(h.room)
	return true, nil
}

func (s *localStore) spend(_ context.Context, r room, n int, per time.Duration) (time.Duration, error) {
	l, now := s.enter(r)
	defer s.mu.Unlock()
	tokens := float64(n)
	if now.Before(l.full) {
		tokens = min(tokens, l.tokens+float64(now.Sub(l.at))*float64(n)/float64(per))
	}
	var wait time.Duration
	if tokens < 1-1e-9 {
		wait = time.Duration(math.Ceil((1 - tokens) * float64(per) / float64(n)))
	} else {
		tokens--
	}
	l.tokens, l.at = tokens, now
	l.full = now.Add(time.Duration((float64(n)-tokens)*float64(per)/float64(n)) + 1)
	return wait, nil
}

func (s *localStore) add(_ context.Context, r room, x float64) error {
	l, now := s.enter(r)
	defer s.mu.Unlock()
	if !now.Before(l.until) {
		l.count, l.total = 0, 0
	}
	if math.IsInf(l.total+x, 0) {
		return fmt.Errorf("the total would overflow")
	}
	l.count, l.total, l.until = l.count+1, l.total+x, now.Add(averageKept)
	return nil
}

func (s *localStore) mean(_ context.Context, r room) (float64, int64, error) {
	l, now := s.enter(r)
	defer s.mu.Unlock()
	if !now.Before(l.until) {
		return 0, 0, nil
	}
	return l.total / float64(l.count), l.count, nil
}

func (s *localStore) listen(r room) (<-chan struct{}, func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	signs := make(chan struct{}, 1)
	signs <- struct{}{} // what was released before this moment has been missed: ask again
	all := s.listeners[r.id()]
	if all == nil {
		all = make(map[chan struct{}]struct{})
		s.listeners[r.id()] = all
	}
	all[signs] = struct{}{}
	return signs, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(all, signs)
		if len(all) == 0 {
			delete(s.listeners, r.id())
		}
	}
}

// wake tells everyone who waits in the room. The caller holds mu.
func (s *localStore) wake(r room) {
	for signs := range s.listeners[r.id()] {
		select {
		case signs <- struct{}{}:
		default:
		}
	}
}
