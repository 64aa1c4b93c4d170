// Tests with something between the peers that speaks HTTP and means well: proxies that answer themselves, that hold answers back, that cut long ones off.

package peers_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

// behind puts a proxy in front of each of the circle's n members: at a member's address the proxy listens, the member itself behind it.
func (c *circle) behind(n int, proxy func(next http.RoundTripper) http.Handler) *circle {
	c.t.Helper()
	for i := range n {
		hidden := "behind-" + addr(i)
		transport := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return c.net.dial(ctx, network, hidden)
		}}
		server := &http.Server{Handler: proxy(transport)}
		l := c.net.listen(addr(i))
		go func() { _ = server.Serve(l) }()
		c.t.Cleanup(func() {
			_ = server.Close()
			transport.CloseIdleConnections()
		})
	}
	for i := range n {
		c.joinAt(urlOf(i), "behind-"+addr(i), staticOf(n))
	}
	return c
}

// pass sends a request on as it is.
func pass(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host = "http", r.Host
	return next.RoundTrip(out)
}

func copyHeader(w http.ResponseWriter, resp *http.Response) {
	for name, values := range resp.Header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
}

// buffering is a proxy that sends nothing of an answer before it has all of it.
func buffering(next http.RoundTripper) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := pass(next, r)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		whole, err := io.ReadAll(resp.Body)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		copyHeader(w, resp)
		_, _ = w.Write(whole)
	})
}

// cutting is a proxy that ends every answer after a while, in the middle of whatever it is.
func cutting(after time.Duration) func(next http.RoundTripper) http.Handler {
	return func(next http.RoundTripper) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), after)
			defer cancel()
			resp, err := pass(next, r.WithContext(ctx))
			if err != nil {
				w.WriteHeader(http.StatusGatewayTimeout)
				return
			}
			defer resp.Body.Close()
			copyHeader(w, resp)
			buf := make([]byte, 4096)
			for {
				n, err := resp.Body.Read(buf)
				if n > 0 {
					_, _ = w.Write(buf[:n])
					_ = http.NewResponseController(w).Flush()
				}
				if err == io.EOF {
					return
				}
				if err != nil {
					panic(http.ErrAbortHandler)
				}
			}
		})
	}
}

// Contract: P15
func TestProxyThatBuffersAnswersCostsTimeAndNoSecondLoad(t *testing.T) {
	for _, load := range []time.Duration{0, 100 * time.Millisecond, 5 * time.Second, 40 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newCircle(t).slowly(load).behind(3, buffering)
			m := c.members[0]
			keys := append(m.keysOf(urlOf(1), 10), m.keysOf(urlOf(2), 10)...)
			var all []<-chan answer
			for _, key := range keys {
				all = append(all, m.get(key))
			}
			for i, a := range all {
				m.check(keys[i], <-a, load+2200*time.Millisecond)
			}
			for _, key := range keys {
				c.wantLoads(key, m.pool.Owner(group, key))
			}
			m.wantState(urlOf(1), "alive")
		})
	}
}

// Contract: P15
func TestProxyThatCutsLongAnswersCostsTimeAndNoSecondLoad(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 15 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := newCircle(t).slowly(40*time.Second).behind(3, cutting(after))
			m := c.members[0]
			keys := m.keysOf(urlOf(1), 10)
			var all []<-chan answer
			for _, key := range keys {
				all = append(all, m.get(key))
				time.Sleep(100 * time.Millisecond)
			}
			for i, a := range all {
				m.check(keys[i], <-a, 42200*time.Millisecond)
			}
			for _, key := range keys {
				c.wantLoads(key, urlOf(1))
			}
			m.wantState(urlOf(1), "alive")
		})
	}
}

// Contract: P7
func TestProxysOwnWordIsAnUnreachablePeer(t *testing.T) {
	page := []byte("<html><title>It works!</title></html>")
	word := wire.AppendHello(wire.Begin(nil), &wire.Hello{Namespace: "test", ID: urlOf(1), Incarnation: 9}) // what the peer itself could have said
	for id := range uint64(20) {
		word = wire.AppendAnswer(word, id, &onefill.Answer{Status: onefill.StatusNotFound, Number: 1})
	}
	for _, test := range []struct {
		name        string
		status      int
		contentType string
		body        []byte
	}{
		{"503", http.StatusServiceUnavailable, "text/plain", []byte("no healthy upstream")},
		{"502 with HTML", http.StatusBadGateway, "text/html", page},
		{"404", http.StatusNotFound, "text/plain; charset=utf-8", []byte("404 page not found\n")},
		{"200 with HTML", http.StatusOK, "text/html", page},
		{"200 with nothing", http.StatusOK, "application/x-onefill", nil},
		{"200 with HTML under our own type", http.StatusOK, "application/x-onefill", page},
		{"a redirect", http.StatusFound, "application/x-onefill", nil},
		{"503 with the peer's word", http.StatusServiceUnavailable, "application/x-onefill", word},
		{"the peer's word as a page", http.StatusOK, "text/html", word},
		{"not found, without a hello", http.StatusOK, "application/x-onefill", []byte("1fl\x01\x05\x04\x01\x02\x00\x00")},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCircle(t)
			server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", test.contentType)
				w.Header().Set("Location", urlOf(0)+"/elsewhere")
				w.WriteHeader(test.status)
				_, _ = w.Write(test.body)
			})}
			l := c.net.listen(addr(1))
			go func() { _ = server.Serve(l) }()
			t.Cleanup(func() { _ = server.Close() })
			m := c.join(urlOf(0), staticOf(2))
			for _, key := range m.keysOf(urlOf(1), 5) {
				m.must(key, 100*time.Millisecond)
				c.wantLoads(key, urlOf(0))
			}
			if got := m.state(urlOf(1)); got != "unreachable" {
				t.Errorf("%s: the member is %q", test.name, got)
			}
		})
	}
}

// Contract: P5, P7
func TestPeerIsBackOnceTheProxyLetsItAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		sick := true
		c.behind(2, func(next http.RoundTripper) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.mu.Lock()
				now := sick
				c.mu.Unlock()
				if now {
					w.WriteHeader(http.StatusServiceUnavailable)
					return
				}
				buffering(next).ServeHTTP(w, r)
			})
		})
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 2)
		m.must(keys[0], 100*time.Millisecond)
		c.wantLoads(keys[0], urlOf(0))
		time.Sleep(time.Minute)
		c.mu.Lock()
		sick = false
		c.mu.Unlock()
		time.Sleep(time.Second)
		m.must(keys[1], 100*time.Millisecond)
		c.wantLoads(keys[1], urlOf(1))
	})
}

// Contract: P15
func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"} {
		t.Setenv(name, "http://proxy:1")
	}
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(2)
		m := c.members[0]
		m.must(m.keyOf(urlOf(1)), 100*time.Millisecond)
		if n := c.net.dialled("proxy:1"); n > 0 {
			t.Errorf("the proxy was dialled %d times", n)
		}
	})
}

// Contract: P4, P7
func TestAnswerThatBreaksOffIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		cut := 0
		c.behind(2, func(next http.RoundTripper) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				resp, err := pass(next, r)
				if err != nil {
					panic(http.ErrAbortHandler)
				}
				defer resp.Body.Close()
				whole, _ := io.ReadAll(resp.Body)
				copyHeader(w, resp)
				c.mu.Lock()
				cut++
				n := cut
				c.mu.Unlock()
				if n%2 == 1 { // every other answer, each time at another place
					_, _ = io.Copy(w, bytes.NewReader(whole[:n*7%len(whole)]))
					panic(http.ErrAbortHandler)
				}
				_, _ = w.Write(whole)
			})
		})
		m := c.members[0]
		for _, key := range m.keysOf(urlOf(1), 50) {
			m.must(key, 2200*time.Millisecond)
			c.wantLoads(key, urlOf(1))
		}
		m.wantState(urlOf(1), "alive")
	})
}
