package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
	"github.com/onefill/onefill/peers"
)

func TestR01VersionDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		a := newGroup(t, all[0].mesh, "users", src.load, onefill.Version("1"))
		b := newGroup(t, all[1].mesh, "users", src.load, onefill.Version("2"))
		key := keyOf(all[0], "users")
		_, _ = a.Get(t.Context(), key)
		if err := b.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		v, err := a.Get(t.Context(), key)
		if v != key+"/2" {
			t.Errorf("after Delete: %q %v", v, err)
		}
	})
}

func TestR02StaleNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{}
		g := newGroup(t, m, "users", src.load, onefill.TTL(time.Second), onefill.Jitter(0), onefill.StaleFor(time.Hour))
		_, _ = g.Get(t.Context(), "k")
		src.fail(onefill.ErrNotFound)
		time.Sleep(2 * time.Second)
		for range 10 {
			v, err := g.Get(t.Context(), "k")
			time.Sleep(time.Second)
			t.Log(v, err, src.loads("k"))
		}
		if v, err := g.Get(t.Context(), "k"); !errors.Is(err, onefill.ErrNotFound) {
			t.Errorf("%q %v loads %d", v, err, src.loads("k"))
		}
	})
}

func TestR03RefreshNotFound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{}
		g := newGroup(t, m, "users", src.load)
		_, _ = g.Get(t.Context(), "k")
		src.fail(onefill.ErrNotFound)
		err := g.Refresh(t.Context(), "k")
		if v, err2 := g.Get(t.Context(), "k"); err2 == nil {
			t.Errorf("refresh %v, then get %q %v", err, v, err2)
		}
	})
}

func TestR04RemoteReaderStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{took: 10 * time.Second}
		gs := inAll(t, all, "users", src.load, onefill.TTL(time.Minute), onefill.Jitter(0), onefill.Beta(-1), onefill.StaleFor(time.Hour), onefill.SoftTimeout(100*time.Millisecond))
		key := keyOf(all[0], "users")
		for _, g := range gs {
			_, _ = g.Get(t.Context(), key)
		}
		time.Sleep(2 * time.Minute)
		src.fail(errors.New("db down"))
		for i, g := range gs {
			began := time.Now()
			v, err := g.Get(t.Context(), key)
			t.Log("get", i, v, err, time.Since(began))
			if err != nil {
				t.Errorf("process %d: %v", i, err)
			}
			time.Sleep(time.Minute)
		}
		began := time.Now()
		vs, err := gs[0].GetMulti(t.Context(), []string{key})
		t.Log("multi", vs, err, time.Since(began))
		if err != nil {
			t.Error("multi", err)
		}
	})
}

func TestR05SoftCancelAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{took: time.Second}
		g := newGroup(t, m, "users", src.load, onefill.TTL(time.Minute), onefill.Jitter(0), onefill.Beta(-1), onefill.StaleFor(time.Hour), onefill.SoftTimeout(100*time.Millisecond), onefill.CancelAbandoned())
		_, _ = g.Get(t.Context(), "k")
		time.Sleep(2 * time.Minute)
		for range 5 {
			v, err := g.Get(t.Context(), "k")
			t.Log(v, err, src.loads("k"))
			time.Sleep(10 * time.Second)
		}
		if v, _ := g.Get(t.Context(), "k"); v == "k/1" {
			t.Errorf("still stale after %d loads", src.loads("k"))
		}
	})
}

func TestR06SentinelInLoaderError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 4)
		src := &countingSource{}
		src.fail(fmt.Errorf("profile: %w", onefill.ErrClosed))
		gs := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		for i := 1; i < 4; i++ {
			src.mu.Lock()
			src.count = map[string]int{}
			src.mu.Unlock()
			_, err := gs[i].Get(t.Context(), key)
			if n := src.total(); n != 1 {
				t.Errorf("%d loads for one Get: %v", n, err)
			}
		}
	})
}

func TestR06bOverloadedForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		src.fail(fmt.Errorf("profile: %w", onefill.ErrOverloaded))
		gs := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := gs[1].Get(ctx, key)
		if n := src.total(); n != 1 {
			t.Errorf("%d loads for one Get: %v", n, err)
		}
		time.Sleep(time.Minute)
		t.Log("a minute after the caller left:", src.total())
	})
}

func TestR07CopySetAliases(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	buf := []byte("loader")
	g := newGroup(t, m, "users", func(context.Context, string) ([]byte, error) { return buf, nil }, onefill.Copy())
	mine := []byte("hello")
	_ = g.Set(t.Context(), "k", mine)
	mine[0] = 'X'
	if v, _ := g.Get(t.Context(), "k"); string(v) != "hello" {
		t.Errorf("%s", v)
	}
	_, _ = g.Get(t.Context(), "l")
	buf[0] = 'X'
	if v, _ := g.Get(t.Context(), "l"); string(v) != "loader" {
		t.Errorf("%s", v)
	}
}

type halfCodec struct{}

func (halfCodec) Encode(v int) ([]byte, error) { return []byte("x"), nil }
func (halfCodec) Decode([]byte) (int, error)   { return 0, errors.New("cannot decode") }

func TestR08CopyUndecodable(t *testing.T) {
	for _, opts := range [][]onefill.Option{{onefill.WithCodec[int](halfCodec{})}, {onefill.WithCodec[int](halfCodec{}), onefill.Copy()}} {
		m := newMesh(t, onefill.Config{})
		g := newGroup(t, m, "users", func(context.Context, string) (int, error) { return 7, nil }, opts...)
		for range 2 {
			v, err := g.Get(t.Context(), "k")
			if v != 7 || err != nil {
				t.Errorf("%d options: %v %v; %+v", len(opts), v, err, g.Stats().EncodeErrors)
			}
		}
	}
}

func TestR09CloseUnderTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onefill.New(onefill.Config{Namespace: "x", MaxBytes: 8 << 20})
		src := &countingSource{took: 10 * time.Millisecond}
		g := newGroup(t, m, "users", src.load)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for c := range 50 {
			wg.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					time.Sleep(time.Duration(c+1) * time.Millisecond)
					if _, err := g.Get(context.Background(), fmt.Sprint(c, "-", i)); err != nil {
						return
					}
				}
			})
		}
		time.Sleep(time.Second)
		began := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = m.Close(ctx)
		if took := time.Since(began); took > time.Second {
			t.Errorf("Close took %v", took)
		}
		close(stop)
		wg.Wait()
	})
}

func TestR09bCloseDetached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onefill.New(onefill.Config{Namespace: "x", MaxBytes: 8 << 20})
		src := &countingSource{took: time.Second}
		g := newGroup(t, m, "users", src.load)
		done := make(chan error, 1)
		go func() { _, err := g.Get(context.Background(), "k"); done <- err }()
		time.Sleep(100 * time.Millisecond)
		_ = g.Delete(t.Context(), "k")
		_ = m.Close(context.Background())
		if err := <-done; err != nil {
			t.Errorf("waiter: %v", err)
		}
	})
}

func TestR10Guest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		owner := newProcess(t, net, 0, peers.Static(urlOf(0)), onefill.Config{})
		guest := newProcess(t, net, 1, believes{urlOf(0)}, onefill.Config{})
		src := &countingSource{}
		gs := inAll(t, []*process{owner, guest}, "users", src.load)
		net.mu.Lock()
		net.cut[addressOf(0)] = true
		net.mu.Unlock()
		_ = guest.mesh.Ready(t.Context())
		v, err := gs[1].Get(t.Context(), "k")
		t.Log(v, err)
		net.mu.Lock()
		net.cut[addressOf(0)] = false
		net.mu.Unlock()
		time.Sleep(5 * time.Second)
		if err := gs[0].Delete(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		if v, _ := gs[1].Get(t.Context(), "k"); v == "k/1" {
			t.Errorf("guest has %q, whose load began before the Delete", v)
		}
	})
}

func TestR11SetWindow(t *testing.T) {
	m := newMesh(t, onefill.Config{MaxBytes: 512 << 20})
	big := make([]string, 20000)
	for i := range big {
		big[i] = "set"
	}
	g := newGroup(t, m, "users", func(ctx context.Context, key string) ([]string, error) {
		time.Sleep(20 * time.Millisecond)
		return []string{"loaded"}, nil
	})
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			_, _ = g.Get(context.Background(), "k")
			time.Sleep(50 * time.Microsecond)
		}
	})
	bad := 0
	for range 30 {
		if err := g.Set(t.Context(), "k", big); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		if v, _ := g.Get(t.Context(), "k"); len(v) == 1 {
			bad++
		}
	}
	stop.Store(true)
	wg.Wait()
	if bad > 0 {
		t.Errorf("%d of 30 Sets were overwritten by a load that began before they returned", bad)
	}
}

func TestR13ServeBeforeJoin(t *testing.T) {
	p, err := peers.NewPool("http://127.0.0.1:7000", peers.Static("http://127.0.0.1:7000"), peers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panicked: %v", r)
		}
	}()
	p.ServeHTTP(newResponse(), helloRequest())
}

func TestR15DeleteCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		src := &countingSource{}
		gs := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		_, _ = gs[0].Get(t.Context(), key)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := gs[1].Delete(ctx, key)
		time.Sleep(10 * time.Second)
		if v, _ := gs[0].Get(t.Context(), key); v == key+"/1" {
			t.Errorf("10 s after %v: %q", err, v)
		}
	})
}

func TestR16GroupCloseInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{took: time.Second}
		g := newGroup(t, m, "users", src.load)
		go func() { _, _ = g.Get(context.Background(), "k") }()
		time.Sleep(100 * time.Millisecond)
		_ = g.Close()
		time.Sleep(5 * time.Second)
		v, err := g.Get(t.Context(), "k")
		if !errors.Is(err, onefill.ErrClosed) {
			t.Errorf("%q %v bytes %d", v, err, m.Stats().Bytes)
		}
	})
}

// changing is a source whose set changes.
type changing chan []string

func (c changing) Watch(ctx context.Context, set func([]peers.Peer)) error {
	for {
		select {
		case urls := <-c:
			var all []peers.Peer
			for _, u := range urls {
				all = append(all, peers.Peer{URL: u})
			}
			set(all)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestR17MemberRemovedMidFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		urls := []string{urlOf(0), urlOf(1), urlOf(2)}
		var all []*process
		var srcs []changing
		for i := range 3 {
			c := make(changing, 1)
			c <- urls
			srcs = append(srcs, c)
			all = append(all, newProcess(t, net, i, c, onefill.Config{}))
		}
		for _, p := range all {
			_ = p.mesh.Ready(t.Context())
		}
		src := &countingSource{took: 3 * time.Second}
		gs := inAll(t, all, "users", src.load)
		key := keyOf(all[0], "users")
		go func() { time.Sleep(time.Second); srcs[1] <- urls[1:]; srcs[2] <- urls[1:] }()
		for i, r := range together(2, func(i int) (string, error) { return gs[1+i].Get(t.Context(), key) }) {
			t.Log(i, r)
		}
		if n := src.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

func TestR18AbandonedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tier := l2.Memory()
		src := &countingSource{took: 2 * time.Second}
		var gs []*onefill.Group[string]
		for range 2 {
			gs = append(gs, newGroup(t, newMesh(t, onefill.Config{Tier: tier}), "users", src.load, onefill.CancelAbandoned()))
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = gs[0].Get(ctx, "k")
		}()
		time.Sleep(500 * time.Millisecond)
		if v, err := gs[1].Get(t.Context(), "k"); err != nil {
			t.Errorf("cluster 2: %q %v", v, err)
		}
	})
}

func TestR18bQueueAbandonedClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tier := l2.Memory()
		src := &countingSource{took: 5 * time.Second}
		var gs []*onefill.Group[string]
		for range 2 {
			gs = append(gs, newGroup(t, newMesh(t, onefill.Config{Tier: tier}), "users", src.load, onefill.MaxLoads(1)))
		}
		go func() { _, _ = gs[0].Get(context.Background(), "other") }()
		time.Sleep(100 * time.Millisecond)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, _ = gs[0].Get(ctx, "k")
		}()
		time.Sleep(500 * time.Millisecond)
		if v, err := gs[1].Get(t.Context(), "k"); err != nil {
			t.Errorf("cluster 2: %q %v", v, err)
		}
	})
}

func TestR21RefreshInLoader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := onefill.New(onefill.Config{Namespace: "x", MaxBytes: 8 << 20})
		var g *onefill.Group[string]
		var n atomic.Int64
		g = newGroup(t, m, "users", func(ctx context.Context, key string) (string, error) {
			if n.Add(1) > 1000 {
				return "x", nil
			}
			return "v", g.Refresh(ctx, key)
		})
		_, err := g.Get(t.Context(), "k")
		if n.Load() > 5 {
			t.Errorf("%d nested loads %v", n.Load(), err)
		}
		_ = m.Close(t.Context())
	})
}

func TestR22StaleEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, stale := range []bool{false, true} {
			m := newMesh(t, onefill.Config{MaxBytes: 1 << 20})
			var down atomic.Bool
			g := newGroup(t, m, "hot", func(ctx context.Context, key string) (string, error) {
				if down.Load() {
					return "", errors.New("down")
				}
				return "v", nil
			}, onefill.TTL(time.Minute), onefill.StaleFor(24*time.Hour))
			cold := newGroup(t, m, "cold", func(ctx context.Context, key string) (string, error) { return "v", nil })
			read := func() (failed int) {
				for i := range 100 {
					if _, err := g.Get(t.Context(), fmt.Sprint(i)); err != nil {
						failed++
					}
				}
				return failed
			}
			for range 5 {
				read()
				time.Sleep(time.Second)
			}
			if stale {
				down.Store(true)
				time.Sleep(2 * time.Minute)
			}
			failed := 0
			for i := range 10000 {
				_, _ = cold.Get(t.Context(), fmt.Sprint(i))
				if i%100 == 0 {
					failed = max(failed, read())
					time.Sleep(20 * time.Millisecond)
				}
			}
			if failed > 0 {
				t.Errorf("stale %v: %d of 100 keys that are read all the time are gone: %d live, %d expired evicted", stale, failed, g.Stats().EvictedLive, g.Stats().EvictedExpired)
			}
		}
	})
}

func TestR23NilSetOption(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	g := newGroup(t, m, "users", (&countingSource{}).load)
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panicked: %v", r)
		}
	}()
	_ = g.Set(t.Context(), "k", "v", nil)
}

// one Delete, then reads
func TestR00Epidemic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		var urls []string
		for i := range 3 {
			urls = append(urls, urlOf(i))
		}
		var all []*process
		for i := range 3 {
			all = append(all, newProcess(t, net, i, peers.Static(urls...), onefill.Config{}))
		}
		src := &countingSource{}
		gs := inAll(t, all, "users", src.load, onefill.TTL(10*time.Hour), onefill.HotTTL(0))
		const n = 40000
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint("user:", i)
		}
		pass := func() int {
			before := src.total()
			for _, g := range gs {
				if _, err := g.GetMulti(t.Context(), keys); err != nil {
					t.Fatal(err)
				}
			}
			return src.total() - before
		}
		t.Log("cold", pass(), "warm", pass())
		for i := range 1 {
			if err := gs[0].Delete(t.Context(), fmt.Sprint("unrelated:", i)); err != nil {
				t.Fatal(err)
			}
		}
		sum := 0
		for i := range 5 {
			x := pass()
			sum += x
			t.Log("pass", i, "loads", x)
		}
		if sum > 100 {
			t.Errorf("%d loads of keys that nobody deleted, after 100 Deletes of keys that were not cached", sum)
		}
	})
}
