// Package tasks owns goroutines: it is the one place in this module with a go statement outside tests. Whoever creates a Set stops it and waits for all
// that it started. What a task does, and when it ends on its own, stays with whoever starts it.
package tasks

import (
	"context"
	"sync"
)

// Set is a group of goroutines with one end. Its methods are safe for concurrent use.
type Set struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu     sync.Mutex // guards closed and the pairing of closed with running.Add
	closed bool

	running sync.WaitGroup
}

// New returns an empty Set.
func New() *Set {
	ctx, cancel := context.WithCancel(context.Background())
	return &Set{ctx: ctx, cancel: cancel}
}

// Go runs fn in a goroutine of its own and reports whether it did: after Close has begun it starts nothing. The context that fn gets is cancelled when
// Close begins.
func (s *Set) Go(fn func(ctx context.Context)) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	s.running.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.running.Done()
		fn(s.ctx)
	}()
	return true
}

// Each calls fn for 0 to n-1, at most most of them at a time, in goroutines of the Set, and waits for all. After Close has begun it calls them one after the other.
func (s *Set) Each(n, most int, fn func(i int)) {
	places := make(chan struct{}, max(most, 1))
	var running sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		running.Add(1)
		work := func(context.Context) {
			defer func() { <-places; running.Done() }()
			fn(i)
		}
		if !s.Go(work) {
			work(s.ctx)
		}
	}
	running.Wait()
}

// Context is cancelled when Close begins.
func (s *Set) Context() context.Context { return s.ctx }

// Stop refuses new tasks and cancels the running ones without waiting for them.
func (s *Set) Stop() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
}

// Close stops the Set and waits for its tasks until ctx ends, whose error it then returns. Calling it again waits again.
func (s *Set) Close(ctx context.Context) error {
	s.Stop()
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
