// Stale values: served at once, after SoftTimeout, or when a load fails, and no longer than StaleFor.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// Contract: F4, T6
func TestStaleValueIsServedAtOnceAndOneRefreshStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &agingSource{took: takes(slow)}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Minute))
		gets(t, g, "key", "1", slow)
		time.Sleep(70*time.Second - 1) // the last moment
		for _, r := range together(100, func(int) (string, error) { return g.Get(t.Context(), "key") }) {
			if r.value != "1" || r.err != nil || r.after != 0 {
				t.Fatalf("%+v", r)
			}
		}
		if _, ok := g.Peek("key"); ok {
			t.Error("Peek shows a stale value as a fresh one")
		}
		time.Sleep(slow)
		synctest.Wait()
		gets(t, g, "key", "2", 0)
		if s := g.Stats(); s.Loads != 2 || s.Refreshes != 1 || s.Stale != 100 || s.Hits != 101 {
			t.Errorf("%+v", s)
		}
		time.Sleep(71 * time.Second)
		gets(t, g, "key", "3", slow)
	})
}

// Contract: F4
func TestWithoutStaleForNothingIsServedAfterItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &agingSource{took: takes(slow)}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.SoftTimeout(time.Millisecond))
		gets(t, g, "key", "1", slow)
		time.Sleep(10 * time.Second)
		gets(t, g, "key", "2", slow)
	})
}

// Contract: F4
func TestSoftTimeoutIsHowLongAReadWaitsForAFreshValue(t *testing.T) {
	for _, opt := range []onefill.Option{nil, onefill.CancelAbandoned(), onefill.MaxLoads(1)} {
		synctest.Test(t, func(t *testing.T) {
			took := 100 * time.Millisecond
			src := &agingSource{took: func(int) time.Duration { return took }}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Minute),
				onefill.SoftTimeout(200*time.Millisecond), opt)
			gets(t, g, "key", "1", took)
			time.Sleep(10 * time.Second)
			gets(t, g, "key", "2", took) // in time
			time.Sleep(10 * time.Second)
			took = time.Second
			for _, r := range together(10, func(int) (string, error) { return g.Get(t.Context(), "key") }) {
				if r.value != "2" || r.err != nil || r.after != 200*time.Millisecond {
					t.Errorf("%+v", r)
				}
			}
			if s := g.Stats(); s.Stale != 10 || s.Loads != 3 {
				t.Errorf("%+v", s)
			}
			time.Sleep(800 * time.Millisecond)
			synctest.Wait()
			gets(t, g, "key", "3", 0) // the load went on and was kept
			if s := g.Stats(); s.Loads != 3 || s.LoadErrors+s.RefreshErrors != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Contract: F4, R4
func TestStaleValueThatEndsWhileAReadWaitsIsNotServedAndEndsNoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &agingSource{took: takes(slow)}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Second),
			onefill.SoftTimeout(slow/2))
		gets(t, g, "key", "1", slow)
		time.Sleep(11*time.Second - 50*time.Millisecond)
		gets(t, g, "key", "2", slow)
	})
}

// retried reads key every 10 ms for a time; each read must bring the stale value want, within most.
func retried(t *testing.T, g *onefill.Group[string], key, want string, most, length time.Duration) {
	t.Helper()
	for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		began := time.Now()
		if v, err := g.Get(context.Background(), key); v != want || err != nil || time.Since(began) > most {
			t.Fatalf("got %q, %v after %v", v, err, time.Since(began))
		}
	}
}

// backsOff fails the test unless the pauses double from first to 30 s, each longer by no more than slack.
func backsOff(t *testing.T, got []time.Duration, first, slack time.Duration) {
	t.Helper()
	want := first
	for i, pause := range got {
		if pause < want || pause > want+slack {
			t.Errorf("pause %d is %v, want %v; all: %v", i, pause, want, got)
		}
		want = max(first, min(2*want, 30*time.Second))
	}
}

// Contract: F5, T6
func TestFailedLoadServesTheStaleValueAndIsRetriedEverMoreSeldom(t *testing.T) {
	const fails = 50 * time.Millisecond
	for _, tc := range []struct{ soft, retry time.Duration }{
		{0, time.Second}, {10 * time.Millisecond, time.Second}, {200 * time.Millisecond, time.Second}, {0, 5 * time.Second}, {10 * time.Millisecond, 40 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			src := &agingSource{took: takes(fails)}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour),
				onefill.SoftTimeout(tc.soft), onefill.RetryAfter(tc.retry), onefill.Beta(-1))
			gets(t, g, "key", "1", fails)
			time.Sleep(10 * time.Second)
			src.set(errDown, false)
			retried(t, g, "key", "1", min(tc.soft, fails), 3*time.Minute)
			pauses := src.pauses(1)
			if len(pauses) < 4 {
				t.Errorf("soft %v, retry after %v: only %d retries", tc.soft, tc.retry, len(pauses))
			}
			backsOff(t, pauses, tc.retry, fails+20*time.Millisecond)
			failed := uint64(len(src.loads()) - 1)
			if s := g.Stats(); s.LoadErrors != failed || s.RefreshErrors != failed || s.Refreshes != 0 || s.Stale == 0 {
				t.Errorf("soft %v: %d failures: %+v", tc.soft, failed, s)
			}
		})
	}
}

// A retry comes no sooner than its pause is over, so a source that is back is noticed within the pause that was running: at most 30 s, and RetryAfter after
// a first failure.
//
// Contract: F5
func TestValueIsFreshAgainWithinTheRunningPauseOfTheSourcesReturn(t *testing.T) {
	for _, soft := range []time.Duration{0, 10 * time.Millisecond} {
		for _, outage := range []time.Duration{500 * time.Millisecond, time.Minute} {
			synctest.Test(t, func(t *testing.T) {
				src := &agingSource{took: takes(50 * time.Millisecond)}
				g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(20*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour),
					onefill.SoftTimeout(soft), onefill.Beta(-1))
				gets(t, g, "key", "1", 50*time.Millisecond)
				time.Sleep(20 * time.Second)
				src.set(errDown, false)
				retried(t, g, "key", "1", soft, outage)
				src.set(nil, false)
				back, pause := time.Now(), time.Second
				for n := len(src.loads()); n > 2; n-- {
					pause = min(2*pause, 30*time.Second)
				}
				if outage == time.Minute && pause != 30*time.Second {
					t.Fatalf("after a minute the pause is %v", pause)
				}
				for v := ""; v == "" || v == "1"; time.Sleep(10 * time.Millisecond) {
					v, _ = g.Get(t.Context(), "key")
				}
				if took := time.Since(back); took > pause+200*time.Millisecond {
					t.Errorf("fresh %v after the source is back; the pause was %v", took, pause)
				}
				n := len(src.loads())
				time.Sleep(20 * time.Second)
				src.set(errDown, false)
				stale, err := g.Get(t.Context(), "key")
				if err != nil {
					t.Fatal(err)
				}
				retried(t, g, "key", stale, soft, 10*time.Second)
				backsOff(t, src.pauses(n), time.Second, 80*time.Millisecond) // from the start again
			})
		}
	}
}

// Contract: F5, F9
func TestSuccessForgetsFailuresHoweverItCame(t *testing.T) {
	for name, recover := range map[string]func(g *onefill.Group[string]) error{
		"a load that a caller waits for": func(g *onefill.Group[string]) error { _, err := g.Get(context.Background(), "key"); return err },
		"Refresh":                        func(g *onefill.Group[string]) error { return g.Refresh(context.Background(), "key") },
		"Set":                            func(g *onefill.Group[string]) error { return g.Set(context.Background(), "key", "set") },
	} {
		synctest.Test(t, func(t *testing.T) {
			src := &agingSource{took: takes(slow)}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(5*slow), onefill.Jitter(0), onefill.StaleFor(40*time.Second))
			gets(t, g, "key", "1", slow)
			src.set(errDown, false)
			retried(t, g, "key", "1", 0, 35*time.Second) // the next retry is in 27 s
			src.set(nil, false)
			time.Sleep(10 * time.Second)
			if err := recover(g); err != nil {
				t.Fatal(err)
			}
			if name == "Set" { // which says nothing of how long loads take
				if err := g.Refresh(t.Context(), "key"); err != nil {
					t.Fatal(err)
				}
			}
			if wait := readFor(t, g, "key", slow/10, 20*slow); wait > 0 || g.Stats().Stale > 4000 {
				t.Errorf("after %s a read waited for %v", name, wait)
			}
			stale := g.Stats().Stale
			readFor(t, g, "key", slow/10, 20*slow)
			if now := g.Stats().Stale; now != stale {
				t.Errorf("after %s %d reads were stale: the refresh was held back", name, now-stale)
			}
		})
	}
}

// Contract: F5
func TestFailureOfAnEarlyRefreshKeepsTheValueAndBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 1)
		src := &agingSource{took: takes(slow)}
		g := newGroup(t, all[0].mesh, "users", src.load, onefill.TTL(20*time.Second), onefill.Jitter(0), onefill.Beta(8)) // from 14.4 s before the end
		gets(t, g, "key", "1", slow)
		src.set(errDown, false)
		retried(t, g, "key", "1", 0, 20*time.Second-10*time.Millisecond)
		pauses := src.pauses(1)
		if len(pauses) < 2 {
			t.Errorf("only %d retries", len(pauses))
		}
		for i, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}[:min(3, len(pauses))] {
			if pauses[i] < want+slow {
				t.Errorf("retry %d after %v, the load before failed only %v before", i+1, pauses[i], pauses[i]-slow)
			}
		}
		if text := all[0].log.text(); !strings.Contains(text, "refresh") || strings.Contains(text, "key") || strings.Contains(text, errDown.Error()) {
			t.Errorf("logged %q", text)
		}
	})
}

// Contract: F6
func TestRefreshThatHangsDoesNotKeepTheStaleValueAlive(t *testing.T) {
	for _, soft := range []time.Duration{0, 10 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			src := &agingSource{took: takes(50 * time.Millisecond)}
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", src.load, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(10*time.Second),
				onefill.SoftTimeout(soft), onefill.LoadTimeout(time.Minute), onefill.Beta(-1))
			gets(t, g, "key", "1", 50*time.Millisecond)
			time.Sleep(10 * time.Second)
			src.set(nil, true)
			retried(t, g, "key", "1", soft, 10*time.Second-2*soft)
			time.Sleep(2 * soft)
			if n := len(src.loads()); n != 2 {
				t.Errorf("%d loads: one hangs", n)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if v, err := g.Get(ctx, "key"); v != "" || !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("after TTL and StaleFor: %q, %v after %v", v, err, time.Since(began))
			}
			src.set(nil, false)
			if v, err := g.Get(t.Context(), "key"); v != "" || !errors.Is(err, onefill.ErrLoadTimeout) { // of the load that hangs
				t.Errorf("%q, %v", v, err)
			}
			gets(t, g, "key", "3", 50*time.Millisecond)
		})
	}
}

// What a newer load brings takes the place of what was there, also where it is not kept: else the old value would be served, and the source asked, without end.
//
// Contract: F2, F4
func TestRefreshThatBringsNothingToKeepEndsTheOldValue(t *testing.T) {
	for name, tc := range map[string]struct {
		value string
		say   func(*onefill.Fill)
		err   error
	}{
		"not found":   {say: func(f *onefill.Fill) { f.NotFound() }, err: onefill.ErrNotFound},
		"do not keep": {value: "new", say: func(f *onefill.Fill) { f.DoNotStore() }},
		"no life":     {value: "new", say: func(f *onefill.Fill) { f.SetTTL(0) }},
		"too large":   {value: strings.Repeat("x", 1000), say: func(*onefill.Fill) {}},
	} {
		for _, early := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				loads := 0
				g := newGroup(t, newMesh(t, onefill.Config{}), "users", func(ctx context.Context, _ string) (string, error) {
					loads++
					time.Sleep(slow)
					if loads == 1 {
						return "old", nil
					}
					tc.say(onefill.FillFrom(ctx))
					return tc.value, nil
				}, onefill.TTL(10*time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour), onefill.MaxValueBytes(999))
				gets(t, g, "key", "old", slow)
				if early {
					time.Sleep(10*time.Second - slow)
				} else {
					time.Sleep(10 * time.Second)
				}
				gets(t, g, "key", "old", 0)
				time.Sleep(slow)
				synctest.Wait()
				if v, err := g.Get(t.Context(), "key"); v != tc.value || !errors.Is(err, tc.err) {
					t.Errorf("%s: after the refresh there is %q, %v", name, v, err)
				}
			})
		}
	}
}

// Contract: F5
func TestFailuresOfOtherKeysDoNotShortenAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, fails = 20, 10 * time.Second
		sources := make(map[string]*agingSource)
		for i := range keys {
			sources[fmt.Sprint(i)] = &agingSource{took: takes(fails)}
		}
		g := newGroup(t, newMesh(t, onefill.Config{}), "users", func(ctx context.Context, key string) (string, error) { return sources[key].load(ctx, key) },
			onefill.TTL(time.Minute), onefill.Jitter(0), onefill.StaleFor(time.Hour), onefill.MaxRefreshes(keys), onefill.Beta(-1))
		together(keys, func(i int) (string, error) { return g.Get(t.Context(), fmt.Sprint(i)) })
		time.Sleep(time.Minute)
		var reading sync.WaitGroup
		for key, src := range sources {
			src.set(errDown, false)
			reading.Go(func() {
				time.Sleep(time.Duration(rand.IntN(60)) * time.Second)
				readFor(t, g, key, time.Second, 10*time.Minute)
			})
		}
		reading.Wait()
		for key, src := range sources {
			want := time.Second
			for i, pause := range src.pauses(1) {
				if pause < want+fails || pause > want+fails+time.Second {
					t.Errorf("key %s: pause %d is %v after a load of %v, want %v", key, i, pause-fails, fails, want)
				}
				want = min(2*want, 30*time.Second)
			}
		}
	})
}
