package lease_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/lease"
	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/internal/tasks"
)

var echo = redis.NewScript(`return ARGV[1]`)

// closeAfter closes a task set when the test ends.
func closeAfter(t *testing.T, set *tasks.Set) {
	t.Cleanup(func() {
		if err := set.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestACallOnAServerThatHangsIsGivenUpAndItsAnswerIsHeardLate(t *testing.T) {
	s := redistest.Start(t)
	set := tasks.New()
	closeAfter(t, set)
	r := lease.NewRunner(s.Client(), set, 100*time.Millisecond)
	if _, err := r.Run(t.Context(), echo, nil, []any{"warm"}, nil); err != nil {
		t.Fatal(err)
	}
	s.Pause()
	late := make(chan any, 1)
	began := time.Now()
	_, err := r.Run(t.Context(), echo, nil, []any{"x"}, func(reply any, _ error) { late <- reply })
	if !errors.Is(err, lease.ErrNoAnswer) {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Fatalf("given up after %v", took)
	}
	s.Resume()
	if reply := <-late; reply != "x" {
		t.Fatalf("late reply %v", reply)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	s := redistest.Start(t)
	set := tasks.New()
	closeAfter(t, set)
	r := lease.NewRunner(s.Client(), set, time.Minute)
	s.Pause()
	defer s.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := r.Run(ctx, echo, nil, []any{"x"}, nil); err != context.DeadlineExceeded {
		t.Fatal(err)
	}
}

func TestAScriptThatTheServerForgotIsSentAgain(t *testing.T) {
	rdb := redistest.Start(t).Client()
	set := tasks.New()
	closeAfter(t, set)
	r := lease.NewRunner(rdb, set, time.Second)
	calls := []lease.Call{{Args: []any{"a"}}, {Args: []any{"b"}}, {Args: []any{"c"}}}
	for range 2 {
		if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		answers, err := r.RunAll(t.Context(), 0, echo, calls)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if a.Err != nil || a.Reply != calls[i].Args[0] {
				t.Fatalf("call %d: %v, %v", i, a.Reply, a.Err)
			}
		}
	}
	if reply, err := r.Run(t.Context(), echo, nil, []any{"x"}, nil); reply != "x" || err != nil {
		t.Fatal(reply, err)
	}
}

func TestNothingRunsOnceTheTaskSetIsClosed(t *testing.T) {
	rdb := redistest.Start(t).Client()
	set := tasks.New()
	closeAfter(t, set)
	set.Stop()
	r := lease.NewRunner(rdb, set, time.Second)
	if _, err := r.Run(t.Context(), echo, nil, []any{"x"}, nil); !errors.Is(err, lease.ErrStopped) {
		t.Fatal(err)
	}
}
