// What callers see of the pool: processes that disagree about owners, lack a group, are gone, or leave. How the pool finds out is tested in package peers.

package onefill_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// believes is a source that names the same members for ever, whether or not this process is among them.
type believes []string

func (b believes) Watch(ctx context.Context, set func([]peers.Peer)) error {
	var all []peers.Peer
	for _, url := range b {
		all = append(all, peers.Peer{URL: url})
	}
	set(all)
	<-ctx.Done()
	return ctx.Err()
}

// Contract: R10
func TestProcessesThatEachThinkAnotherOwnsAKeyAllGetAValue(t *testing.T) {
	for _, n := range []int{2, 3} {
		synctest.Test(t, func(t *testing.T) {
			net := newNetwork()
			var all []*process
			for i := range n { // each knows only the next one, and thinks that it owns everything
				all = append(all, newProcess(t, net, i, believes{urlOf((i + 1) % n)}, onefill.Config{}))
			}
			src := &countingSource{took: 100 * time.Millisecond}
			groups := inAll(t, all, "users", src.load)
			synctest.Wait() // all sources have spoken
			for i, p := range all {
				if err := p.mesh.Ready(t.Context()); err != nil {
					t.Fatal(err)
				}
				if owner := p.pool.Owner("users", "key"); owner != urlOf((i+1)%n) {
					t.Fatalf("process %d believes that %q owns the key", i, owner)
				}
			}
			for i, r := range together(2*n, func(i int) (string, error) { return groups[i%n].Get(t.Context(), "key") }) {
				if r.err != nil || r.after >= time.Second {
					t.Errorf("%d processes, caller %d: %+v", n, i, r)
				}
			}
			if loads := src.total(); loads > n {
				t.Errorf("%d processes: %d loads", n, loads)
			}
			for i, p := range all {
				if path := p.trips.path(); strings.Contains(path, "serve/fetch") {
					t.Errorf("%d processes: process %d asked on behalf of a peer: %s", n, i, path)
				}
			}
		})
	}
}

// Contract: P7
func TestProcessWithoutTheGroupIsPassedOver(t *testing.T) {
	for name, other := range map[string][]onefill.Option{"no such group": nil, "another version": {onefill.Version("2")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, 3)
				src := &countingSource{took: 10 * time.Millisecond}
				groups := inAll(t, all[:2], "users", src.load, onefill.Version("1"))
				if other != nil {
					newGroup(t, all[2].mesh, "users", src.load, other...)
				}
				keys := append(keysOf(all[2], "users", 20), keysOf(all[0], "users", 5)...)
				for i, r := range together(4*len(keys), func(i int) (string, error) { return groups[i%2].Get(t.Context(), keys[i/4]) }) {
					if r.err != nil || r.value != keys[i/4]+"/1" {
						t.Errorf("caller %d: %+v", i, r)
					}
				}
				if values, err := groups[0].GetMulti(t.Context(), keysOf(all[2], "users", 40)); len(values) != 40 || err != nil {
					t.Errorf("GetMulti found %d, %v", len(values), err)
				}
				for _, key := range keysOf(all[2], "users", 40) {
					if n := src.loads(key); n != 1 {
						t.Errorf("%s was loaded %d times", key, n)
					}
				}
			})
		})
	}
}

// Contract: P3
func TestOwnerThatIsGoneIsReplacedByOneDeputyForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		all := newMeshesOn(t, net, 5)
		src := &countingSource{took: slow}
		groups := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		net.unplug(addressOf(0))
		for i, r := range together(100, func(i int) (string, error) { return groups[1+i%4].Get(t.Context(), key) }) {
			if r.err != nil || r.value != key+"/1" || r.after > slow+peers.DefaultPeerSilence {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if n := src.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// Contract: P10
func TestProcessThatLeavesAnswersWhatItHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 3)
		src := &countingSource{took: slow}
		groups := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		closed := closesAfter(t, all[0], slow/2)
		for i, r := range together(6, func(i int) (string, error) { return groups[i%3].Get(t.Context(), key) }) {
			if r.err != nil || r.value != key+"/1" || r.after > slow+100*time.Millisecond {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if n := src.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
		<-closed
		if _, err := groups[0].Get(t.Context(), "another"); !errors.Is(err, onefill.ErrClosed) {
			t.Errorf("Get after Close: %v", err)
		}
		if owner := all[1].pool.Owner("users", key); owner == all[0].url || owner != all[2].pool.Owner("users", key) {
			t.Errorf("after it has left %q owns its key", owner)
		}
	})
}

// Contract: P10
func TestCallersOfAProcessThatLeavesGetWhatItHasAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: slow}
		groups := inAll(t, all, "users", src.load)
		key := keyOf(all[1], "users")
		closed := closesAfter(t, all[0], slow/2)
		for i, r := range together(2, func(int) (string, error) { return groups[0].Get(t.Context(), key) }) {
			if r.err != nil || r.value != key+"/1" {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		<-closed
		if n := src.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// closesAfter closes a process's mesh after d and says when that is done.
func closesAfter(t *testing.T, p *process, d time.Duration) (closed <-chan struct{}) {
	done := make(chan struct{})
	time.AfterFunc(d, func() {
		defer close(done)
		if err := p.mesh.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return done
}

// Contract: P10
func TestCloseThatRunsOutOfTimeCancelsLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{took: time.Hour}
		g := newGroup(t, m, "users", src.load, onefill.LoadTimeout(2*time.Hour))
		closed := make(chan error, 1)
		time.AfterFunc(slow, func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			closed <- m.Close(ctx)
		})
		r := together(1, func(int) (string, error) { return g.Get(t.Context(), "key") })[0]
		if !errors.Is(r.err, onefill.ErrClosed) || r.after > slow+1100*time.Millisecond {
			t.Errorf("%+v", r)
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// The bubble fails if a goroutine is left at its end; a loader that does not obey is waited for, no longer than five seconds.
//
// Contract: P10
func TestNoGoroutineOutlivesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 3)
		src := &countingSource{took: time.Hour}
		groups := inAll(t, all, "users", src.load)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		together(30, func(i int) (string, error) {
			_, err := groups[i%3].GetMulti(ctx, keysOf(all[i%2], "users", i))
			return "", err
		})
		began := time.Now()
		for _, p := range all {
			over, cancel := context.WithCancel(context.Background())
			cancel()
			_ = p.mesh.Close(over) // the farewells fail: there is no time for them
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
		for i, g := range groups {
			if _, err := g.Get(t.Context(), "key"); !errors.Is(err, onefill.ErrClosed) {
				t.Errorf("process %d: Get after Close: %v", i, err)
			}
		}
	})
}

func TestCloseReportsALoaderThatDoesNotObey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		g := newGroup(t, m, "users", func(context.Context, string) (string, error) { time.Sleep(time.Minute); return "late", nil })
		short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := g.Get(short, "key"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		began := time.Now()
		if err := m.Close(short); err == nil || time.Since(began) != 5*time.Second {
			t.Errorf("Close returned %v after %v", err, time.Since(began))
		}
		if err := m.Close(t.Context()); err != nil || time.Since(began) < 50*time.Second {
			t.Errorf("a second Close returned %v after %v", err, time.Since(began))
		}
	})
}

func TestEveryMethodOfAClosedGroupReturnsErrClosed(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	src := &countingSource{}
	ctx := t.Context()
	alone, with := newGroup(t, m, "alone", src.load), newGroup(t, m, "with the mesh", src.load)
	if err := alone.Close(); err != nil {
		t.Error(err)
	}
	newGroup(t, m, "alone", src.load) // its name is free again
	closeMesh(t, m)
	for name, g := range map[string]*onefill.Group[string]{"closed": alone, "closed with its mesh": with} {
		_, errGet := g.Get(ctx, "key")
		_, errMulti := g.GetMulti(ctx, []string{"key"})
		for method, err := range map[string]error{
			"Get": errGet, "GetMulti": errMulti, "Refresh": g.Refresh(ctx, "key"), "Set": g.Set(ctx, "key", "v"), "Delete": g.Delete(ctx, "key"),
			"Close": g.Close(), "Ready": m.Ready(ctx),
		} {
			if !errors.Is(err, onefill.ErrClosed) {
				t.Errorf("%s: %s returned %v", name, method, err)
			}
		}
	}
	if _, err := onefill.NewGroup(m, "new", src.load); !errors.Is(err, onefill.ErrClosed) {
		t.Errorf("NewGroup returned %v", err)
	}
}

// changing is a source whose members change: to those that are sent.
type changing chan believes

func (c changing) Watch(ctx context.Context, set func([]peers.Peer)) error {
	for {
		select {
		case urls := <-c:
			var all []peers.Peer
			for _, url := range urls {
				all = append(all, peers.Peer{URL: url})
			}
			set(all)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Contract: P4, R2
func TestOwnerThatTheListDropsWhileItLoadsIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		urls := believes{urlOf(0), urlOf(1), urlOf(2)}
		var all []*process
		var lists []changing
		for i := range urls {
			list := make(changing, 1)
			list <- urls
			lists, all = append(lists, list), append(all, newProcess(t, net, i, list, onefill.Config{}))
		}
		for _, p := range all {
			if err := p.mesh.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		src := &countingSource{took: 3 * time.Second}
		groups := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		time.AfterFunc(time.Second, func() { lists[1] <- urls[1:]; lists[2] <- urls[1:] })
		for i, r := range together(2, func(i int) (string, error) { return groups[1+i].Get(t.Context(), key) }) {
			if r.value != key+"/1" || r.err != nil {
				t.Errorf("caller %d: %+v", i, r)
			}
		}
		if n := src.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}
