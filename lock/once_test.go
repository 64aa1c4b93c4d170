package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onefill/onefill/lock"
)

// Contract: K10
func TestOneOfManyRunsTheJobAndTheOthersWaitForItsSuccess(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var runs, skips atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			c, _, done := w.redisClient(lock.Config{})
			defer done()
			for range 3 {
				all.Go(func() {
					began := time.Now()
					ran, err := c.Once(context.Background(), "migration", time.Hour, func(context.Context) error {
						time.Sleep(45 * time.Second)
						return nil
					})
					switch {
					case err != nil:
						w.t.Error(err)
					case ran:
						runs.Add(1)
					default:
						skips.Add(1)
					}
					if took := time.Since(began); took < 45*time.Second {
						w.t.Errorf("back after %v, before the job was done", took)
					}
				})
			}
		}
		all.Wait()
		if runs.Load() != 1 || skips.Load() != 11 {
			w.t.Fatalf("%d ran, %d skipped", runs.Load(), skips.Load())
		}
	})
}

// Contract: K10
func TestTheWindowCountsFromTheSuccess(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		job := func(context.Context) error { time.Sleep(30 * time.Second); return nil }
		for _, step := range []struct {
			after time.Duration
			ran   bool
		}{{0, true}, {time.Second, false}, {58 * time.Second, false}, {2 * time.Second, true}} {
			time.Sleep(step.after)
			ran, err := c.Once(w.t.Context(), "job", time.Minute, job)
			want(w.t, err, nil)
			if ran != step.ran {
				w.t.Fatalf("%v later: ran %v, want %v", step.after, ran, step.ran)
			}
		}
	})
}

// Contract: K10
func TestAFailureOrAPanicFreesTheClaim(t *testing.T) {
	inBoth(t, func(w *world) {
		c, done := w.client()
		defer done()
		failure := errors.New("failure")
		ran, err := c.Once(w.t.Context(), "job", time.Minute, func(context.Context) error { return failure })
		want(w.t, err, failure)
		if !ran {
			w.t.Fatal("not run")
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Once(w.t.Context(), "job", time.Minute, func(context.Context) error { panic("panic") })
		}()
		began := time.Now()
		ran, err = c.Once(w.t.Context(), "job", time.Minute, func(context.Context) error { return nil })
		want(w.t, err, nil)
		if !ran || time.Since(began) != 0 {
			w.t.Fatalf("ran %v after %v", ran, time.Since(began))
		}
	})
}

// Contract: K10
func TestASuccessIsRecordedWhenTheStoreComesBack(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		ran, err := c.Once(w.t.Context(), "job", time.Minute, func(context.Context) error {
			w.server.SetError("LOADING")
			time.AfterFunc(3*time.Second, func() { w.server.SetError("") })
			return nil
		})
		want(w.t, err, nil)
		if !ran {
			w.t.Fatal("not run")
		}
		ran, err = c.Once(w.t.Context(), "job", time.Minute, func(context.Context) error { return nil })
		want(w.t, err, nil)
		if ran {
			w.t.Fatal("run twice")
		}
	})
}

// Contract: K10
func TestASuccessUnderALostClaimIsNotRecorded(t *testing.T) {
	inFakeTime(t, func(w *world) {
		c, _, done := w.redisClient(lock.Config{})
		defer done()
		ran, err := c.Once(w.t.Context(), "job", time.Minute, func(context.Context) error { w.server.FlushAll(); return nil })
		want(w.t, err, lock.ErrLost)
		if !ran {
			w.t.Fatal("not run")
		}
		ran, err = c.Once(w.t.Context(), "job", time.Minute, func(context.Context) error { return nil })
		want(w.t, err, nil)
		if !ran {
			w.t.Fatal("skipped after a run that did not count")
		}
	})
}
