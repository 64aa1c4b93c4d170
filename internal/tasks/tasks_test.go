package tasks_test

// A Set of goroutines from the outside: they run, they are told to end, they are waited for.

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill/internal/tasks"
)

func TestCloseCancelsTasksAndWaitsForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasks.New()
		var ended atomic.Int32
		for range 3 {
			if !s.Go(func(ctx context.Context) { <-ctx.Done(); time.Sleep(time.Second); ended.Add(1) }) {
				t.Error("it was refused")
			}
		}
		began := time.Now()
		if err := s.Close(t.Context()); err != nil || ended.Load() != 3 || time.Since(began) != time.Second {
			t.Errorf("%v after %v, %d ended", err, time.Since(began), ended.Load())
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("a second time: %v", err)
		}
	})
}

func TestNothingStartsOnceTheEndHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasks.New()
		s.Stop()
		if s.Go(func(context.Context) { t.Error("it ran") }) || s.Context().Err() == nil {
			t.Error("it was taken")
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseGivesUpWithItsContextAndMayBeTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tasks.New()
		s.Go(func(context.Context) { time.Sleep(time.Minute) }) // does not obey
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := s.Close(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseWaitsForATaskThatStartsInTheSameMoment(t *testing.T) {
	for range 200 {
		s := tasks.New()
		var running, ended atomic.Int32
		var starters sync.WaitGroup
		for range 4 {
			starters.Go(func() {
				if s.Go(func(context.Context) { ended.Add(1) }) {
					running.Add(1)
				}
			})
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := ended.Load()
		starters.Wait()
		if running.Load() != after {
			t.Fatalf("%d were taken, %d had ended when Close returned", running.Load(), after)
		}
	}
}
