// Tests of requests that mean harm, and of strangers. What a peer may say is in internal/wire, whose tests feed it garbage of every kind.

package peers_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
	"github.com/onefill/onefill/peers"
)

// stranger sends bytes to a member and returns what it answers until it hangs up; "" is nothing. It gives up writing once the member does not read.
func (c *circle) stranger(to string, send func(w io.Writer) error) string {
	conn, err := c.net.dial(c.t.Context(), "", to)
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		w := bufio.NewWriterSize(conn, 64<<10)
		if send(w) == nil {
			_ = w.Flush()
		}
	}()
	answer, _ := io.ReadAll(conn)
	conn.Close()
	<-sent
	return string(answer)
}

const requestLine = "POST /_onefill/v1 HTTP/1.1\r\nHost: m0\r\nContent-Type: application/x-onefill\r\nConnection: close\r\n"

func hello(id string) []byte {
	return wire.AppendHello(wire.Begin(nil), &wire.Hello{Namespace: "test", ID: id, Incarnation: 7, Session: 8})
}

// repeat writes b until n bytes are written or nobody takes them.
func repeat(w io.Writer, b []byte, n int) error {
	b = bytes.Repeat(b, max(1, 64<<10/len(b)))
	for ; n > 0; n -= len(b) {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// Contract: S3
func TestHostileRequestsAreRefusedAndMemoryStaysFlat(t *testing.T) {
	long := binary.AppendUvarint(hello("x"), 1<<31)
	ask := wire.AppendAsk(nil, 1, false, &onefill.Ask{Group: "none", Key: "k"})
	set := wire.AppendInvalidate(nil, &onefill.Invalidation{Group: "none", Keys: []string{"k"}, Number: 1})
	whole := func(body []byte) string {
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", requestLine, len(body), body)
	}
	stream := func(first, then []byte) func(io.Writer) error {
		return func(w io.Writer) error {
			fmt.Fprintf(w, "%sContent-Length: %d\r\n\r\n%s", requestLine, 1<<30, first)
			return repeat(w, then, 1<<30-len(first))
		}
	}
	for name, send := range map[string]func(w io.Writer) error{
		"a body of 1 GiB of nothing":        stream(nil, make([]byte, 1024)),
		"a body of 1 GiB of garbage":        stream(hello("x"), []byte("garbage ")),
		"a body of 1 GiB of questions":      stream(hello("x"), ask),
		"a body of 1 GiB of long questions": stream(hello("x"), wire.AppendAsk(nil, 1, false, &onefill.Ask{Group: "none", Key: strings.Repeat("k", 30<<10)})),
		"a body of 1 GiB of forgets":        stream(hello("x"), wire.AppendForget(nil, 1)),
		"a body of 1 GiB of invalidations":  stream(hello("x"), set),
		"a body of 1 GiB of unknown frames": stream(hello("x"), []byte{3, 200, 1, 2}),
		"a body of 1 GiB in one frame":      stream(binary.AppendUvarint(hello("x"), 1<<30-100), make([]byte, 1024)),
		"a header that never ends": func(w io.Writer) error {
			_, _ = io.WriteString(w, requestLine)
			return repeat(w, []byte("X-More: of the same\r\n"), 1<<30)
		},
		"a request line that never ends": func(w io.Writer) error { _, _ = io.WriteString(w, "POST /"); return repeat(w, []byte("a"), 1<<30) },
		"a chunked body that never ends": func(w io.Writer) error {
			_, _ = io.WriteString(w, requestLine+"Transfer-Encoding: chunked\r\n\r\n")
			return repeat(w, []byte("400\r\n"+strings.Repeat("x", 1024)+"\r\n"), 1<<30)
		},
		"a frame of 2 GiB": func(w io.Writer) error { _, err := io.WriteString(w, whole(long)); return err },
		"a body that breaks off": func(w io.Writer) error {
			_, err := io.WriteString(w, whole(hello("x"))[:len(requestLine)+40])
			return err
		},
		"a header that stops in the middle": func(w io.Writer) error { _, err := io.WriteString(w, requestLine); return err },
		"garbage":                           func(w io.Writer) error { return repeat(w, []byte{0x16, 3, 1, 0xff, 0, '\n'}, 1<<20) },
		"another version":                   func(w io.Writer) error { _, err := io.WriteString(w, whole([]byte("1fl\x02"))); return err },
		"a question before the hello": func(w io.Writer) error {
			_, err := io.WriteString(w, whole(append(wire.Begin(nil), ask...)))
			return err
		},
		"a list longer than its frame": func(w io.Writer) error {
			_, err := io.WriteString(w, whole(append(hello("x"), 7, 2, 1, 0, 0, 0, 0, 0xff)))
			return err
		},
		"a body that comes a byte a second":  trickle(whole(append(hello("x"), ask...)), time.Second),
		"a header that comes a byte a while": trickle(requestLine, 300*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCircle(t).start(2)
				m := c.members[1]
				keys := m.keysOf(urlOf(0), 2)
				m.must(keys[0], time.Second)
				before := allocated()
				began := time.Now()
				answer := c.stranger(addr(0), send)
				if grown := allocated() - before; grown > 160<<20 { // twice what a request may have at all, and what its pieces cost
					t.Errorf("%d MiB were allocated", grown>>20)
				}
				if took := time.Since(began); took > time.Minute {
					t.Errorf("the stranger held a connection for %v", took)
				}
				if strings.HasPrefix(answer, "HTTP/1.1 200") && !strings.Contains(name, "unknown frames") {
					t.Errorf("answered %q", answer[:min(len(answer), 200)])
				}
				m.must(keys[1], 10*time.Millisecond)
				m.wantState(urlOf(0), "alive")
			})
		})
	}
}

// trickle sends a byte at a time.
func trickle(text string, pause time.Duration) func(io.Writer) error {
	return func(w io.Writer) error {
		for _, b := range []byte(text) {
			if _, err := w.Write([]byte{b}); err != nil {
				return err
			}
			if err := w.(*bufio.Writer).Flush(); err != nil {
				return err
			}
			time.Sleep(pause)
		}
		return nil
	}
}

// allocated is how many bytes the process has allocated since it began.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// Contract: S3
func TestTenThousandIdleConnectionsAreEndedAndTheProcessServesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(2)
		m := c.members[1]
		keys := m.keysOf(urlOf(0), 100)
		m.must(keys[0], time.Second)
		var idle []net.Conn
		for range 9_990 {
			conn, err := c.net.dial(t.Context(), "", addr(0))
			if err != nil {
				t.Fatal(err)
			}
			idle = append(idle, conn)
		}
		m.must(keys[1], 10*time.Millisecond)
		more := make(chan net.Conn) // beyond what is let in at all
		for range 100 {
			go func() {
				conn, err := c.net.dial(t.Context(), "", addr(0))
				if err != nil {
					t.Error(err)
				}
				more <- conn
			}()
		}
		for i := range 100 { // over the connection that there is
			m.must(keys[i], 10*time.Millisecond)
		}
		for range 100 {
			idle = append(idle, <-more)
		}
		time.Sleep(6 * time.Second)
		for i, conn := range idle {
			_ = conn.SetReadDeadline(time.Now())
			if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("connection %d: %v", i, err)
			}
			conn.Close()
		}
		m.wantState(urlOf(0), "alive")
	})
}

// secured makes the circle's pools speak TLS from a secret, and members' URLs say so.
func secured(t *testing.T, secrets ...string) *circle {
	c := newCircle(t)
	c.cfg.Insecure, c.cfg.Secrets = false, secrets
	return c
}

const secretA, secretB = "a secret of thirty-two bytes ....", "another secret of thirty-two bytes"

func secureURL(i int) string { return "https://" + addr(i) }

// Contract: S2
func TestPoolWithASecretSpeaksTLSAndFillsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := secured(t, secretA, secretB)
		list := peers.Static(secureURL(0), secureURL(1))
		c.join(secureURL(0), list)
		c.cfg.Secrets = []string{secretB, secretA} // in the middle of a rotation
		c.join(secureURL(1), list)
		for i := range 50 {
			key := fmt.Sprintf("user:%d", i)
			for _, m := range c.members {
				m.must(key, 10*time.Millisecond)
			}
			c.wantLoads(key, c.members[0].pool.Owner(group, key))
		}
	})
}

// Contract: S2, S4
func TestProcessWithAnotherSecretLearnsNothingAndIsNoPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := secured(t, secretA)
		list := peers.Static(secureURL(0), secureURL(1))
		c.join(secureURL(0), list)
		c.cfg.Secrets = []string{secretB}
		c.join(secureURL(1), list)
		for _, m := range c.members {
			for i := range 2 {
				key := m.keyOf(secureURL(i))
				m.must(key, 100*time.Millisecond)
				if at := c.loadsOf(key); at[len(at)-1] != m.url {
					t.Errorf("%s got %q from %v", m.url, key, at)
				}
			}
		}
		if len(c.log.lines("unreachable", "secret")) == 0 {
			t.Error("the log does not say what is wrong")
		}
	})
}

// Contract: S4
func TestUnauthenticatedClientLearnsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := secured(t, secretA)
		m := c.join(secureURL(0), peers.Static(secureURL(0)))
		m.must("known", time.Second)
		body := wire.AppendAsk(hello("x"), 1, false, &onefill.Ask{Group: group, Key: "known"})
		request := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", requestLine, len(body), body)

		for name, cfg := range map[string]*tls.Config{
			"plain":          nil,
			"no certificate": {InsecureSkipVerify: true},
			"an old version": {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12},
		} {
			conn, err := c.net.dial(t.Context(), "", addr(0))
			if err != nil {
				t.Fatal(err)
			}
			raw := conn
			if cfg != nil {
				conn = tls.Client(conn, cfg)
			}
			go func() { _, _ = io.WriteString(conn, request) }()
			answer, err := io.ReadAll(conn)
			raw.Close()
			if bytes.Contains(answer, []byte("value of")) || bytes.Contains(answer, []byte("200")) || bytes.Contains(answer, []byte("onefill")) {
				t.Errorf("%s: answered %q, %v", name, answer, err)
			}
		}

		for name, cfg := range map[string]*tls.Config{"plain": nil, "TLS without client certificates": m.pool.TLSConfig()} { // mounted on a server of the user's
			server := &http.Server{Handler: m.pool}
			l := c.net.listen("mounted:1")
			var in net.Listener = l
			if cfg != nil {
				cfg.ClientAuth, cfg.NextProtos = tls.NoClientCert, nil
				in = tls.NewListener(l, cfg)
			}
			go func() { _ = server.Serve(in) }()
			transport := &http.Transport{
				DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return c.net.dial(ctx, "", "mounted:1") }, TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			}
			scheme := "http"
			if cfg != nil {
				scheme = "https"
			}
			for _, path := range []string{"v1", "v2", "", "v1/" + group} {
				for _, asked := range []string{group, "no such group"} {
					body := wire.AppendAsk(hello("x"), 1, false, &onefill.Ask{Group: asked, Key: "known"})
					req, _ := http.NewRequest(http.MethodPost, scheme+"://mounted:1"+peers.Path+path, bytes.NewReader(body))
					req.Header.Set("Content-Type", "application/x-onefill")
					resp, err := transport.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					text, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != http.StatusForbidden || len(text) > 0 {
						t.Errorf("%s, %q, %q: status %d, %q", name, path, asked, resp.StatusCode, text)
					}
				}
			}
			transport.CloseIdleConnections()
			_ = server.Close()
		}
	})
}

// Contract: S3
func TestStrangersWhoHangUpLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(time.Hour).start(1)
		body := wire.AppendAsk(hello("x"), 1, false, &onefill.Ask{Group: group, Key: "k"})
		before := runtime.NumGoroutine()
		for i := range 200 {
			conn, err := c.net.dial(t.Context(), "", addr(0))
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", requestLine, len(body), body)
			} else {
				listen := wire.AppendListen(hello("x"), time.Second)
				_, _ = fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", requestLine, len(listen), listen)
			}
			_, _ = conn.Read(make([]byte, 100))
			conn.Close()
		}
		time.Sleep(time.Minute)
		if n := runtime.NumGoroutine() - before; n > 20 {
			t.Errorf("%d goroutines more than before", n)
		}
	})
}
