// Who is alive: what is heard of a member, what its silence means, how it comes back.
//
// Slow is not dead. A peer answers a request within milliseconds, if only to say that it works on it, and then says so again every quarter of PeerSilence. A
// link on which nothing was heard for half of PeerSilence after a request is polled; after PeerSilence its member counts as dead, and so it does at once when a
// request fails and the poll that follows fails too. A dead member is asked nothing; one ping at a time, with growing pauses, finds out when it is back.

package peers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/onefill/onefill/internal/wire"
)

// status is what this process believes of a member.
type status uint8

const (
	alive status = iota // until proven otherwise
	unreachable
	left          // it said so; until it comes back as a new process
	misconfigured // it is this process, or another than the source says, or of another namespace
	retired       // the source names it no longer
)

func (s status) String() string {
	return [...]string{"alive", "unreachable", "left", "misconfigured", "retired"}[s]
}

const (
	firstPing = 100 * time.Millisecond
	lastPing  = 500 * time.Millisecond // so that a member is back within a second of its first answer
	// keepStream is how long a standing stream stays open with nothing to wait for.
	keepStream = 30 * time.Second
	// warnGuest is after what time a process that the source does not list says so.
	warnGuest = 30 * time.Second
)

// talks reports whether the member may answer what it was asked before: one that is leaving or no member any more does. The caller holds mu.
func (l *link) talks() bool {
	return l.ended == nil && (l.status == alive || l.status == left || l.status == retired)
}

func (l *link) alive() bool { return l.state() == alive }

func (l *link) state() status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// misconfigured returns the error for a member that can never work.
func (l *link) misconfigured() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault
}

// hear notes a sign of life.
func (l *link) hear() {
	l.mu.Lock()
	l.heard, l.asked = time.Now(), time.Time{}
	l.mu.Unlock()
}

// greet looks at who answered.
func (l *link) greet(h *wire.Hello) error {
	switch {
	case h.Incarnation == l.pool.incarnation:
		return &refusal{wire.RefusedSelf, fmt.Sprintf("the member %q is this process, which calls itself %q: spell it the same in both places", l.id, l.pool.self)}
	case h.ID != l.id:
		return &refusal{wire.RefusedFormat, fmt.Sprintf("the member that the source calls %q calls itself %q: give it one name", l.id, h.ID)}
	}
	l.pool.mesh().Merge(h.Clock)
	l.mu.Lock()
	l.incarn, l.heard, l.asked = h.Incarnation, time.Now(), time.Time{}
	l.mu.Unlock()
	return nil
}

// refused is told that the peer does not look at this process's requests.
func (l *link) refused(r *refusal) {
	err := fmt.Errorf("peers: %s", r.text)
	l.mu.Lock()
	changed := l.status != misconfigured && l.status != retired && l.ended == nil
	revived := l.status == alive
	if l.status != retired {
		l.status, l.fault, l.mirror = misconfigured, err, r.why == wire.RefusedSelf
	}
	l.mu.Unlock()
	if changed {
		l.pool.log.Error("a member is misconfigured", slog.String("peer", l.id), slog.String("error", r.text))
		l.pool.changed()
	}
	l.drop(err)
	if changed && revived {
		l.pool.tasks.Go(l.revive)
	}
}

// die is told why the member counts as dead.
func (l *link) die(err error) {
	dead := fmt.Errorf("peers: %s is unreachable: %w", l.id, err)
	l.mu.Lock()
	if l.status != alive || l.ended != nil { // nobody counts on it any more, except those who wait
		l.mu.Unlock()
		l.drop(dead)
		return
	}
	l.status = unreachable
	l.mu.Unlock()
	l.pool.changed() // before those who wait are told: they ask the next in rank
	l.drop(dead)
	l.pool.log.Warn("a peer is unreachable", slog.String("peer", l.id), slog.String("error", err.Error()))
	l.pool.tasks.Go(l.revive)
}

// revive pings a member that is out of use until it is fit again: a dead one until it answers, a misconfigured one until it no longer is, one that has left
// until a new process answers under its name.
func (l *link) revive(ctx context.Context) {
	for pause := firstPing; ; pause = min(2*pause, lastPing) {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		if l.ping(ctx) == nil && l.fit() {
			l.pool.changed()
			return
		}
		l.mu.Lock()
		over := l.ended != nil || l.status == retired
		l.mu.Unlock()
		if over {
			return
		}
	}
}

// fit puts a member that has answered a ping back in use, unless the process that answers is the one that said it leaves.
func (l *link) fit() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil || l.status == retired || l.status == left && l.incarn == l.leftAs {
		return false
	}
	l.status, l.fault, l.asked = alive, nil, time.Time{}
	return true
}

// ping asks the member for a sign of life.
func (l *link) ping(ctx context.Context) error {
	err := l.exchange(ctx, newBody(l.hello()), l.take)
	var refused *refusal
	if errors.As(err, &refused) {
		l.refused(refused)
	}
	return err
}

// depart is told that the member leaves the pool. incarnation says which life of it.
func (l *link) depart(incarnation uint64) {
	l.mu.Lock()
	changed := l.status == alive && l.ended == nil && (l.incarn == 0 || l.incarn == incarnation)
	if changed {
		l.status, l.leftAs = left, incarnation
	}
	l.mu.Unlock()
	if changed {
		l.pool.changed()
		l.pool.tasks.Go(l.revive)
	}
}

// retire is told that the source no longer names the member. It is asked nothing new; what it was asked already it may answer, as long as it lives.
func (l *link) retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = retired
}

// retiring returns the links to former members on which something is open, and ends the others.
func (p *Pool) retiring() []*link {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = slices.DeleteFunc(p.retired, func(l *link) bool {
		if l.busy() {
			return false
		}
		l.end(fmt.Errorf("peers: %s is no member any more", l.id))
		return true
	})
	return slices.Clone(p.retired)
}

// busy reports whether somebody waits for an answer of the member.
func (l *link) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.open) > 0 || len(l.queue) > 0
}

// watchHealth looks at all links at short intervals.
func (p *Pool) watchHealth(ctx context.Context) {
	ticker := time.NewTicker(p.cfg.PeerSilence / 16)
	defer ticker.Stop()
	began, warned := time.Now(), false
	for {
		select {
		case now := <-ticker.C:
			for _, l := range p.view.Load().links {
				l.check(now)
			}
			for _, l := range p.retiring() {
				l.check(now)
			}
			p.sessions.sweep(now)
			if !warned && now.Sub(began) >= warnGuest {
				warned = true
				p.warnIfGuest()
			}
		case <-ctx.Done():
			return
		}
	}
}

func (p *Pool) warnIfGuest() {
	p.mu.Lock()
	lonely := !p.cfg.Guest && !p.listed && len(p.links) > 0
	p.mu.Unlock()
	if lonely {
		p.log.Warn("the source does not list this process: it asks the others and owns nothing", slog.String("self", p.self))
	}
}

// check decides what a link's silence means.
func (l *link) check(now time.Time) {
	silence := l.pool.cfg.PeerSilence
	l.mu.Lock()
	if !l.talks() {
		l.mu.Unlock()
		return
	}
	asked, quiet := l.asked, time.Duration(0)
	if len(l.open) > 0 && asked.IsZero() { // signs of life are due as long as something is open
		asked = l.heard
	}
	if !asked.IsZero() {
		quiet = now.Sub(asked)
	}
	idle := len(l.open) == 0 && len(l.queue) == 0
	stream, unused := l.stream, idle && now.Sub(l.idle) > keepStream
	l.mu.Unlock()
	switch {
	case stream != nil && unused:
		stream()
	case quiet >= silence:
		l.die(fmt.Errorf("silent for %v", quiet.Round(time.Millisecond)))
	case quiet >= silence/2:
		l.pool.tasks.Go(func(context.Context) { l.poll(errors.New("silence")) })
	case quiet >= silence/8:
		l.sound()
	}
}

// sound pings the members that would be asked next if this one proved dead, so that a dead deputy is known by then and costs no silence of its own.
func (l *link) sound() {
	v := l.pool.view.Load()
	next := make(map[*link]bool)
	l.mu.Lock()
	for _, q := range l.open {
		if len(next) == maxSounded {
			break
		}
		if _, second := v.ranking.top2(keyHash(q.ask.Group, q.ask.Key)); second >= 0 && v.ranked[second] != nil {
			next[v.ranked[second]] = true
		}
	}
	l.mu.Unlock()
	for other := range next {
		other.mu.Lock()
		recent := time.Since(other.heard) < l.pool.cfg.PeerSilence/8
		other.mu.Unlock()
		if other != l && !recent {
			l.pool.tasks.Go(func(context.Context) { other.poll(errors.New("it would be asked next")) })
		}
	}
}

// maxSounded bounds the deputies that one silent owner makes this process ping.
const maxSounded = 16
