// This file runs Lua scripts with a bound of its own. The scripts, and what an error means, are the callers'.

package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/tasks"
)

// ErrNoAnswer says that a call was given up because the store did not answer in time. What the call asked for may still happen.
var ErrNoAnswer = errors.New("lease: no answer from the store in time")

// ErrStopped says that the task set behind a Runner or a Queue has been closed.
var ErrStopped = errors.New("lease: stopped")

// Runner runs scripts on a Redis client and gives each call up after a timeout by itself, whatever the client's own options: with go-redis's defaults, a
// context of 250 ms on a server that hangs comes back after 5 s. It is safe for concurrent use.
type Runner struct {
	client  redis.UniversalClient
	heeding redis.UniversalClient // see Direct; nil where there is none
	tasks   *tasks.Set
	timeout time.Duration
}

// NewRunner returns a Runner whose calls take at most timeout. Calls that were given up end in set, no later than the client's own timeouts allow.
func NewRunner(client redis.UniversalClient, set *tasks.Set, timeout time.Duration) *Runner {
	return &Runner{client: client, heeding: heeding(client, timeout), tasks: set, timeout: timeout}
}

// Call is one run of a script.
type Call struct {
	Keys []string
	Args []any
}

// Answer is what one run of a script gave.
type Answer struct {
	Reply any
	Err   error
}

// Run runs the script once: by EVALSHA, and by EVAL where the server does not know it. It returns ctx's own error when ctx ends first, ErrNoAnswer after
// the timeout, and otherwise what the client said. Where Run gave up, late (unless nil) is called with the outcome once there is one, in a task of the
// set: that is the place to undo what nobody waits for any more.
func (r *Runner) Run(ctx context.Context, script *redis.Script, keys []string, args []any, late func(reply any, err error)) (any, error) {
	answer, err := bounded(ctx, r, r.timeout, func(ctx context.Context) Answer {
		reply, err := script.Run(ctx, r.client, keys, args...).Result()
		return Answer{reply, err}
	}, func(a Answer) {
		if late != nil {
			late(a.Reply, a.Err)
		}
	})
	if err != nil {
		return nil, err
	}
	return answer.Reply, answer.Err
}

// RunAll runs the script for each call in one pipeline, and again by EVAL for those whose server did not know it. The answers stand in the order of the
// calls. It takes at most the Runner's timeout, or bound where that is shorter and not zero, and fails as a whole only as Run does.
func (r *Runner) RunAll(ctx context.Context, bound time.Duration, script *redis.Script, calls []Call) ([]Answer, error) {
	if bound <= 0 || bound > r.timeout {
		bound = r.timeout
	}
	return bounded(ctx, r, bound, func(ctx context.Context) []Answer {
		answers := make([]Answer, len(calls))
		all := make([]int, len(calls))
		for i := range all {
			all[i] = i
		}
		unknown := r.pipeline(ctx, calls, all, answers, func(p redis.Pipeliner, c Call) *redis.Cmd {
			return script.EvalSha(ctx, p, c.Keys, c.Args...)
		})
		r.pipeline(ctx, calls, unknown, answers, func(p redis.Pipeliner, c Call) *redis.Cmd {
			return script.Eval(ctx, p, c.Keys, c.Args...)
		})
		return answers
	}, nil)
}

// pipeline sends the chosen calls in one pipeline, fills in their answers, and returns those whose script the server did not know.
func (r *Runner) pipeline(ctx context.Context, calls []Call, chosen []int, answers []Answer, send func(redis.Pipeliner, Call) *redis.Cmd) (unknown []int) {
	if len(chosen) == 0 {
		return nil
	}
	p := r.client.Pipeline()
	sent := make([]*redis.Cmd, len(chosen))
	for i, n := range chosen {
		sent[i] = send(p, calls[n])
	}
	_, _ = p.Exec(ctx) // each command carries its own error
	for i, n := range chosen {
		answers[n].Reply, answers[n].Err = sent[i].Result()
		if redis.HasErrorPrefix(answers[n].Err, "NOSCRIPT") {
			unknown = append(unknown, n)
		}
	}
	return unknown
}

// The three ways that a bounded call can stand.
const (
	waiting int32 = iota
	answered
	abandoned
)

// bounded runs fn in a task and waits for it until ctx ends or the bound has passed. fn's context has both ends too, for clients that obey it. If the wait
// ended first, late (unless nil) gets the answer when there is one.
func bounded[T any](ctx context.Context, r *Runner, bound time.Duration, fn func(context.Context) T, late func(T)) (T, error) {
	var none T
	if err := ctx.Err(); err != nil {
		return none, err
	}
	limited, cancel := context.WithTimeout(ctx, bound)
	answers := make(chan T, 1)
	var state atomic.Int32
	if !r.tasks.Go(func(context.Context) {
		defer cancel()
		answer := fn(limited)
		if state.CompareAndSwap(waiting, answered) {
			answers <- answer
		} else if late != nil {
			late(answer)
		}
	}) {
		cancel()
		return none, ErrStopped
	}
	select {
	case answer := <-answers:
		return answer, nil
	case <-limited.Done():
	}
	if !state.CompareAndSwap(waiting, abandoned) {
		return <-answers, nil
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	return none, fmt.Errorf("%w (%v)", ErrNoAnswer, bound)
}
