// What an observer, the counts and the log tell of a read.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// Contract: T1
func TestTripsOfAMissTellItsStory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		groups := inAll(t, all, "users", src.load)
		mine, theirs := keyOf(all[0], "users"), keyOf(all[1], "users")
		for range 2 {
			for _, key := range []string{mine, theirs} {
				if _, err := groups[0].Get(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		}
		if path := all[0].trips.path(); path != "get get/load get get/fetch" {
			t.Errorf("the process that asks made the trips %q", path)
		}
		if path := all[1].trips.path(); path != "serve serve/load" {
			t.Errorf("the owner made the trips %q", path)
		}
		asks, serves := all[0].trips.trips(), all[1].trips.trips()
		get, fetch, serve, load := asks[2], asks[3], serves[0], serves[1]
		if fetch.Trace == "" || serve.Trace != fetch.Trace || serve.Peer != all[0].url || fetch.Peer != all[1].url {
			t.Errorf("the question carried %+v, the answer began with %+v", fetch.Trip, serve.Trip)
		}
		if get.result.Load != load.Trace || serve.result.Load != load.Trace || get.result.Number == 0 || get.result.Number != load.result.Number {
			t.Errorf("the Get ended with %+v, the load was %q and ended with %+v", get.result, load.Trace, load.result)
		}
		for outcome, trip := range map[onefill.Outcome]*recorded{"loaded": load, "peer": get} {
			if trip.result.Outcome != outcome || trip.result.Err != nil {
				t.Errorf("a %s ended with %+v", trip.Kind, trip.result)
			}
		}
		for _, trip := range append(asks, serves...) {
			if trip.ended != 1 || trip.Group != "users" || trip.Key != mine && trip.Key != theirs {
				t.Errorf("a trip that ended %d times: %+v", trip.ended, trip.Trip)
			}
		}
	})
}

// Contract: T1
func TestTraceTravelsWithEachKeyOfAGatheredRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: slow}
		groups := inAll(t, all, "users", src.load)
		keys := keysOf(all[1], "users", 50)
		together(len(keys), func(i int) (string, error) { return groups[0].Get(t.Context(), keys[i]) })
		traces := make(map[string]string)
		for _, fetch := range all[0].trips.of(onefill.TripFetch) {
			traces[fetch.Key] = fetch.Trace
		}
		serves := all[1].trips.of(onefill.TripServe)
		for _, serve := range serves {
			if serve.Trace == "" || serve.Trace != traces[serve.Key] {
				t.Errorf("%s was asked as %q and served as %q", serve.Key, traces[serve.Key], serve.Trace)
			}
		}
		if len(serves) != len(keys) || len(traces) != len(keys) {
			t.Errorf("%d fetches and %d serves of %d keys", len(traces), len(serves), len(keys))
		}
	})
}

// carrier is an observer that sends baggage.
type carrier struct{ recorder }

func (c *carrier) Begin(ctx context.Context, trip *onefill.Trip) (context.Context, func(onefill.Result)) {
	for _, name := range trip.BaggageKeys {
		trip.Baggage = append(trip.Baggage, name, "of "+name)
	}
	return c.recorder.Begin(ctx, trip)
}

// Contract: R5
func TestOnlyDeclaredBaggageTravels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		pool := all[1]
		watcher := &carrier{}
		m := newMesh(t, onefill.Config{Observer: watcher, Peers: &lentPool{owner: pool.mesh}})
		load := func(ctx context.Context, key string) (string, error) {
			if v := ctx.Value(valueKey{}); v != nil {
				t.Errorf("a value of the asker's context came along: %v", v)
			}
			return key, nil
		}
		g := newGroup(t, m, "users", load, onefill.Baggage("tenant", "region"))
		newGroup(t, pool.mesh, "users", load)
		if _, err := g.Get(context.WithValue(t.Context(), valueKey{}, "x"), "key"); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(pool.trips.of(onefill.TripServe)[0].Baggage); got != "[tenant of tenant region of region]" {
			t.Errorf("the owner was given %s", got)
		}
	})
}

// Contract: T6
func TestCountsSayWhoHitWhoMissedAndWhoDidNeither(t *testing.T) {
	for _, multi := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m := newMesh(t, onefill.Config{})
			src := &countingSource{took: slow}
			g := newGroup(t, m, "users", src.load)
			get := func(int) (string, error) {
				if !multi {
					return g.Get(t.Context(), "key")
				}
				values, err := g.GetMulti(t.Context(), []string{"key"})
				return values["key"], err
			}
			src.fail(errors.New("down"))
			together(10, get)
			if s := g.Stats(); s.Hits != 0 || s.Joins != 0 || s.Misses != 1 || s.Loads != 1 || s.LoadErrors != 1 {
				t.Errorf("multi %t: after a load that failed: %+v", multi, s)
			}
			src.fail(nil)
			together(10, get)
			together(10, get)
			if s := g.Stats(); s.Hits != 19 || s.Joins != 9 || s.Misses != 2 || s.LoadErrors != 1 {
				t.Errorf("multi %t: after one that did not, and ten hits: %+v", multi, s)
			}
			src.fail(onefill.ErrNotFound)
			if _, err := g.Get(t.Context(), "nobody"); !errors.Is(err, onefill.ErrNotFound) {
				t.Error(err)
			}
			if s := g.Stats(); s.NotFound != 1 || s.LoadErrors != 1 || s.Misses != 3 {
				t.Errorf("multi %t: after one that found nothing: %+v", multi, s)
			}
		})
	}
}

// Contract: T6
func TestMeshStatsShowMembersAndFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		all := newMeshesOn(t, net, 2)
		src := &countingSource{}
		groups := inAll(t, all, "users", src.load)
		net.unplug(addressOf(1))
		if _, err := groups[0].Get(t.Context(), keyOf(all[1], "users")); err != nil {
			t.Fatal(err)
		}
		s := all[0].mesh.Stats()
		if len(s.Members) != 2 || !s.Members[0].Self || s.Members[1].ID != all[1].url || s.Members[1].State != "unreachable" {
			t.Errorf("%+v", s.Members)
		}
		if s.Groups["users"].Loads != 1 || s.Bytes == 0 || s.MaxBytes != 8<<20 {
			t.Errorf("%+v", s)
		}
	})
}

// Contract: T7
func TestBackgroundFailuresAreLoggedAndCountedButNotEachOfThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 1)
		g := newGroup(t, all[0].mesh, "users", func(context.Context, string) (sealed, error) { return sealed{}, nil })
		for i := range 100 {
			if _, err := g.Get(t.Context(), fmt.Sprint("key ", i)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if _, err := g.Get(t.Context(), "one more"); err != nil {
			t.Fatal(err)
		}
		text := all[0].log.text()
		if lines := strings.Count(text, "\n"); lines != 2 || !strings.Contains(text, "skipped=99") {
			t.Errorf("%d lines: %s", lines, text)
		}
		if strings.Contains(text, "one more") || strings.Contains(text, "key ") {
			t.Errorf("a key was logged: %s", text)
		}
		if n := all[0].mesh.Stats().Failures["a value cannot be encoded"]; n != 101 {
			t.Errorf("counted %d", n)
		}
	})
}

// Contract: T7
func TestExpectedEventsAreNotLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		slowly := &countingSource{took: slow}
		groups := inAll(t, all, "users", slowly.load, onefill.CancelAbandoned())
		missing := inAll(t, all, "missing", func(context.Context, string) (string, error) { return "", onefill.ErrNotFound })
		failing := inAll(t, all, "failing", func(context.Context, string) (string, error) { return "", errors.New("secret text") })
		for i := range 2 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if _, err := groups[i].Get(ctx, keyOf(all[1], "users")); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
			if _, err := missing[i].Get(t.Context(), "key"); !errors.Is(err, onefill.ErrNotFound) {
				t.Error(err)
			}
			if _, err := failing[i].Get(t.Context(), "key"); err == nil {
				t.Error("no error")
			}
		}
		time.Sleep(slow)
		for i, p := range all {
			if text := p.log.text(); text != "" {
				t.Errorf("process %d logged %s", i, text)
			}
			if n := p.mesh.Stats().Groups["missing"].LoadErrors; n != 0 {
				t.Errorf("process %d counted %d errors", i, n)
			}
		}
	})
}
