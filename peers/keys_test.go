// Tests of what travels: keys and group names of any bytes, values of any size, errors of every kind.

package peers_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// awkward are keys that others have lost or changed on the way.
func awkward() []string {
	return []string{"", " ", "a b", "a+b", "a/b", "/lead", "a//b", "a/../b", ".", "..", "%2F", "%2E%2E", "ü", "日本", "\n", "\r\n", "\x00", "\xff\xfe",
		"?", "#", "a?b=c#d", "\\", "{id}", ":", "\"", strings.Repeat("k", 4096)}
}

// Contract: R11
func TestKeyOfAnyBytesArrivesAsItIsBehindAnyMux(t *testing.T) {
	muxes := map[string]func(http.Handler) http.Handler{
		"its own server": nil,
		"http.ServeMux": func(pool http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle(peers.Path, pool)
			mux.HandleFunc("/", http.NotFound)
			return mux
		},
		"a pattern with a method": func(pool http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("POST "+peers.Path, pool)
			return mux
		},
		"a mux of the user's": func(pool http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, peers.Path) {
					pool.ServeHTTP(w, r)
					return
				}
				http.Redirect(w, r, "/", http.StatusMovedPermanently)
			})
		},
	}
	for name, wrap := range muxes {
		synctest.Test(t, func(t *testing.T) {
			c := newCircle(t)
			c.wrap = wrap
			c.start(2)
			for _, key := range awkward() {
				for _, m := range c.members { // one of them is not the owner
					m.must(key, 100*time.Millisecond)
				}
				c.wantLoads(key, c.members[0].pool.Owner(group, key))
			}
			many := others(awkward())
			values, err := c.members[0].GetMulti(t.Context(), many)
			if err != nil || len(values) != len(many) {
				t.Errorf("%s: GetMulti of new keys: %d of %d values, %v", name, len(values), len(many), err)
			}
			for _, key := range many {
				c.wantLoads(key, c.members[0].pool.Owner(group, key))
			}
		})
	}
}

// others returns keys like these that were not asked for yet.
func others(keys []string) (more []string) {
	for _, key := range keys {
		if len(key) < 4096 {
			more = append(more, key+"!")
		}
	}
	return more
}

// Contract: R11, R19
func TestGroupNamesOfAnyBytesAreGroupsOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(2)
		type named struct{ groups [2]*onefill.Group[string] }
		all := make(map[string]*named)
		for _, name := range awkward() {
			if name == "" || len(name) > 1024 {
				continue
			}
			all[name] = &named{}
			for i, m := range c.members {
				g, err := onefill.NewGroup(m.mesh, name, func(_ context.Context, key string) (string, error) { return name + "|" + key, nil })
				if err != nil {
					t.Fatal(err)
				}
				all[name].groups[i] = g
			}
		}
		for name, n := range all {
			for _, g := range n.groups {
				for _, key := range []string{"a", "b", name} {
					if v, err := g.Get(t.Context(), key); err != nil || v != name+"|"+key {
						t.Errorf("group %q, key %q: %q, %v", name, key, v, err)
					}
				}
			}
		}
	})
}

// Contract: R14
func TestTooLongKeyIsRefusedBeforeAnyTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newCircle(t), &ledger{}
		c.wrap = l.around
		c.start(2)
		if _, err := c.members[0].Get(t.Context(), strings.Repeat("k", 4097)); !errors.Is(err, onefill.ErrKeyTooLong) {
			t.Errorf("error %v", err)
		}
		if n := l.requests(); n > 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// Contract: R14, R8
func TestValuesOfEverySizeTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		sizes := map[string]int{}
		c.load = func(_ context.Context, _ *member, key string) (string, error) {
			return strings.Repeat(key[:1], sizes[key]), nil
		}
		c.start(2)
		for i, key := range c.members[0].keysOf(urlOf(1), 6) {
			sizes[key] = []int{0, 1, 1<<14 - 30, 1 << 14, 1<<20 + 1, 17 << 20}[i]
			v, err := c.members[0].Get(t.Context(), key)
			if err != nil || len(v) != sizes[key] || strings.Trim(v, key[:1]) != "" {
				t.Errorf("a value of %d bytes arrives with %d, %v", sizes[key], len(v), err)
			}
			if _, err := c.members[0].Get(t.Context(), key); err != nil {
				t.Error(err)
			}
			want := 1
			if sizes[key] > 16<<20 { // returned, not kept
				want = 2
			}
			if n := len(c.loadsOf(key)); n != want {
				t.Errorf("a value of %d bytes was loaded %d times, want %d", sizes[key], n, want)
			}
		}
	})
}

// Contract: R7
func TestErrorReachesAllWhoWaitAndNobodyWhoComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.load = func(context.Context, *member, string) (string, error) {
			time.Sleep(100 * time.Millisecond)
			return "", errSource
		}
		c.start(4)
		key := c.members[0].keyOf(urlOf(3))
		var all []<-chan answer
		for _, m := range c.members {
			all = append(all, m.get(key), m.get(key), m.get(key))
		}
		for i, a := range all {
			got := <-a
			var load *onefill.LoadError
			switch m := c.members[i/3]; {
			case m.url == urlOf(3):
				if !errors.Is(got.err, errSource) {
					t.Errorf("where it ran: %v", got.err)
				}
			case !errors.As(got.err, &load):
				t.Errorf("%s: %v (%T)", m.url, got.err, got.err)
			case load.Peer != urlOf(3) || load.Group != group || load.Text != errSource.Error():
				t.Errorf("%s: %+v", m.url, load)
			}
		}
		c.wantLoads(key, urlOf(3))
		if a := <-c.members[0].get(key); a.err == nil {
			t.Error("a later Get succeeds")
		}
		c.wantLoads(key, urlOf(3), urlOf(3))
	})
}

// Contract: R7
func TestNotFoundIsItselfInEveryProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.load = func(context.Context, *member, string) (string, error) {
			return "", fmt.Errorf("no such row: %w", onefill.ErrNotFound)
		}
		c.start(3)
		for _, url := range urls(3) {
			key := c.members[0].keyOf(url)
			for _, m := range c.members {
				if a := <-m.get(key); !errors.Is(a.err, onefill.ErrNotFound) {
					t.Errorf("%s: %v", m.url, a.err)
				}
			}
			c.wantLoads(key, url, url, url)
		}
	})
}

// Contract: R6
func TestLoaderThatDoesNotReturnGivesEveryWaiterElsewhereATypedError(t *testing.T) {
	for name, fault := range map[string]func(){
		"panic":  func() { panic("a bug") },
		"goexit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCircle(t)
			broken := true
			good := c.load
			c.load = func(ctx context.Context, m *member, key string) (string, error) {
				if broken {
					time.Sleep(time.Second)
					fault()
				}
				return good(ctx, m, key)
			}
			c.start(3)
			key := c.members[0].keyOf(urlOf(2))
			var all []<-chan answer
			for i := range 50 {
				all = append(all, c.members[i%3].get(key))
			}
			for i, a := range all {
				var p *onefill.PanicError
				if got := <-a; !errors.As(got.err, &p) {
					t.Errorf("%s: %v", name, got.err)
				} else if here := i%3 == 2; here != (p.Peer == "") || !here && p.Peer != urlOf(2) || !strings.Contains(p.Stack, "keys_test.go") || (p.Value != nil) != (name == "panic") {
					t.Errorf("%s: peer %q, value %v, stack %q", name, p.Peer, p.Value, p.Stack)
				}
			}
			c.wantLoads(key, urlOf(2))
			broken = false
			c.members[0].must(key, 10*time.Millisecond)
		})
	}
}

// Contract: R7, T3
func TestNoLineOfTheLogHoldsAKeyOrAValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.start(3)
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 5)
		m.must(keys[0], time.Second)
		c.net.kill(addr(1))
		for _, key := range keys {
			m.must(key, 100*time.Millisecond)
		}
		if len(c.log.lines("unreachable")) == 0 {
			t.Error("not a word about the peer")
		}
		if lines := c.log.lines("user:"); len(lines) > 0 {
			t.Errorf("the log names keys: %q", lines)
		}
	})
}
