// What a loader may say about its fill, and what a Get inside a loader has to know of the loads around it: the chain.

package onefill

import (
	"context"
	"sync"
	"time"

	"github.com/onefill/onefill/internal/flight"
)

// Fill is a loader's word about the one value that it is loading. FillFrom returns it. Its methods are safe for concurrent use; after the loader has returned
// they do nothing.
type Fill struct {
	mu   sync.Mutex // guards what follows
	said said
	done bool

	number uint64
	depth  int
}

// said is what a loader said.
type said struct {
	ttl        time.Duration
	ttlSet     bool
	tags       []string
	notFound   bool
	doNotStore bool
}

// FillFrom returns the fill that ctx belongs to. It is never nil: outside a loader it returns a Fill that does nothing.
func FillFrom(ctx context.Context) *Fill {
	if s := scopeFrom(ctx); s != nil && s.fill != nil {
		return s.fill
	}
	return &Fill{done: true}
}

func (f *Fill) say(what func(*said)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.done {
		what(&f.said)
	}
}

// SetTTL sets how long this value is fresh, in place of the group's TTL, or of NotFoundTTL for a value that is not found. Zero or negative means that it is
// returned but not kept.
func (f *Fill) SetTTL(d time.Duration) {
	f.say(func(s *said) { s.ttl, s.ttlSet = min(d, maxDuration), true })
}

// Tag adds tags to this value.
func (f *Fill) Tag(tags ...string) { f.say(func(s *said) { s.tags = append(s.tags, tags...) }) }

// NotFound says that the source has no value: callers get ErrNotFound, whatever the loader returns, unless it returns an error.
func (f *Fill) NotFound() { f.say(func(s *said) { s.notFound = true }) }

// DoNotStore says that those who wait get the value and that it is not kept.
func (f *Fill) DoNotStore() { f.say(func(s *said) { s.doNotStore = true }) }

// Fence is the number of this fill: it rises with every load and invalidation of the key, so that a store that remembers it can refuse an older writer. It
// is 0 outside a loader.
func (f *Fill) Fence() uint64 { return f.number }

// Depth is how many loads this one is nested in: 0 for a load that a plain Get started. A loader that reads other keys of its own group can look at it to
// stop.
func (f *Fill) Depth() int { return f.depth }

// close ends the fill and returns what the loader said.
func (f *Fill) close() said {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
	return f.said
}

// scope is what travels in the context of a flight: what a Get in there has to know.
type scope struct {
	chain  []uint64     // digests of the keys that are being filled around it, outermost first
	flight *flight.Node // the flight that would wait; nil for a load that runs alone
	fill   *Fill        // nil outside loaders
	place  *place       // the load's place among MaxLoads, nil where there is none
}

type scopeKey struct{}

func scopeFrom(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	return s
}

func (s *scope) in(ctx context.Context) context.Context { return context.WithValue(ctx, scopeKey{}, s) }

// chainFrom returns the chain that ctx belongs to.
func chainFrom(ctx context.Context) []uint64 {
	if s := scopeFrom(ctx); s != nil {
		return s.chain
	}
	return nil
}

// count returns how often digest stands in chain.
func count(chain []uint64, digest uint64) (n int) {
	for _, d := range chain {
		if d == digest {
			n++
		}
	}
	return n
}

// extend returns chain with digest at its end, sharing no memory that another extension could write.
func extend(chain []uint64, digest uint64) []uint64 {
	return append(chain[:len(chain):len(chain)], digest)
}

// places bounds how many loads run at once. A nil *places has no bound.
type places struct{ free chan struct{} }

func newPlaces(n int) *places {
	if n == 0 {
		return nil
	}
	return &places{free: make(chan struct{}, n)}
}

// take waits for a place until gone or ctx ends.
func (p *places) take(ctx context.Context, gone context.Context) (*place, error) {
	if p == nil {
		return nil, nil
	}
	select {
	case p.free <- struct{}{}:
		return &place{in: p}, nil
	case <-gone.Done():
		return nil, flight.ErrAbandoned
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// place is one load's right to run. The load gives it back while it waits in Gets of its own: otherwise loads that wait for others could use up all places.
type place struct {
	in *places

	mu      sync.Mutex // guards what follows; never held while waiting
	state   placeState
	waiting int // nested Gets under way
}

type placeState uint8

const (
	placeHeld placeState = iota
	placeLent
	placeTaking // a nested Get has ended, its goroutine waits for a place
	placeLeft   // the load has ended
)

// lend gives the place back while a nested Get waits. The function that it returns takes one again, or does without when ctx ends first. Where several nested
// Gets run at once, the last to end takes it.
func (p *place) lend() (back func(ctx context.Context)) {
	if p == nil {
		return func(context.Context) {}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	p.release(placeLent)
	return p.back
}

func (p *place) back(ctx context.Context) {
	p.mu.Lock()
	p.waiting--
	take := p.waiting == 0 && p.state == placeLent
	if take {
		p.state = placeTaking
	}
	p.mu.Unlock()
	if !take {
		return
	}
	taken := false
	select {
	case p.in.free <- struct{}{}:
		taken = true
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case taken && p.state == placeTaking && p.waiting == 0:
		p.state = placeHeld
	case taken: // meanwhile the load has ended, or waits in another Get
		<-p.in.free
	}
	if p.state == placeTaking {
		p.state = placeLent
	}
}

// leave ends the load's stay.
func (p *place) leave() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.release(placeLeft)
}

// release changes the state and gives back the place if it is held. The caller holds mu.
func (p *place) release(next placeState) {
	if p.state == placeHeld {
		<-p.in.free
	}
	if p.state != placeTaking || next == placeLeft {
		p.state = next
	}
}
