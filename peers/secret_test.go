// Tests of TLS from secrets: who gets in, who does not, and that no clock matters.

package peers

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const oldSecret, newSecret = "an old secret of 32 random bytes", "a new secret of 32 random bytes."

func secretEnds(t testing.TB, secrets ...string) (server, client *tls.Config) {
	t.Helper()
	server, client, err := tlsFromSecrets(secrets)
	if err != nil {
		t.Fatal(err)
	}
	return server, client
}

// memoryConn is one end of a connection in memory. Unlike net.Pipe it takes a write before the other end reads, as networks do: two ends that refuse each other
// both write.
type memoryConn struct {
	net.Conn // nil: nothing else is called
	in, out  *direction
	rest     []byte
}

type direction struct {
	data chan []byte
	shut chan struct{}
	once sync.Once
}

func newMemoryConns() (a, b *memoryConn) {
	there := &direction{data: make(chan []byte, 64), shut: make(chan struct{})}
	back := &direction{data: make(chan []byte, 64), shut: make(chan struct{})}
	return &memoryConn{in: back, out: there}, &memoryConn{in: there, out: back}
}

func (c *memoryConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		select {
		case c.rest = <-c.in.data: // also once shut: what was written arrives
		default:
			select {
			case c.rest = <-c.in.data:
			case <-c.in.shut:
				return 0, io.EOF
			}
		}
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *memoryConn) Write(b []byte) (int, error) {
	select {
	case <-c.out.shut:
		return 0, io.ErrClosedPipe
	case c.out.data <- bytes.Clone(b):
		return len(b), nil
	}
}

func (c *memoryConn) Close() error {
	c.in.once.Do(func() { close(c.in.shut) })
	c.out.once.Do(func() { close(c.out.shut) })
	return nil
}

// meet lets client dial addr at server and exchanges a byte each way. It returns what each end has to say.
func meet(server, client *tls.Config, addr string) (serverErr, clientErr error) {
	a, b := newMemoryConns()
	return meetOver(a, b, server, client, addr)
}

func meetOver(a, b net.Conn, server, client *tls.Config, addr string) (serverErr, clientErr error) {
	done := make(chan error, 1)
	go func() {
		conn := tls.Server(a, server)
		_, err := conn.Write([]byte("!"))
		if err == nil {
			_, err = conn.Read(make([]byte, 1))
		}
		a.Close()
		done <- err
	}()
	dial := func(context.Context, string, string) (net.Conn, error) { return b, nil }
	conn, clientErr := tlsDialer(dial, client)(context.Background(), "tcp", addr)
	if clientErr == nil {
		_, clientErr = conn.Read(make([]byte, 1))
		if clientErr == nil {
			_, clientErr = conn.Write([]byte("!"))
		}
	}
	serverErr, clientErr = <-done, explainTLS(clientErr)
	b.Close()
	return serverErr, clientErr
}

// Contract: S2
func TestProcessesWithOneSecretTalk(t *testing.T) {
	server, _ := secretEnds(t, oldSecret)
	_, client := secretEnds(t, oldSecret)
	for _, addr := range []string{"10.0.0.3:7946", "users.prod.svc:7946", "[::1]:7946"} {
		if serverErr, clientErr := meet(server, client, addr); serverErr != nil || clientErr != nil {
			t.Errorf("%s: %v, %v", addr, serverErr, clientErr)
		}
	}
}

// Contract: S2
func TestAnotherSecretIsRefusedByEitherEnd(t *testing.T) {
	server, _ := secretEnds(t, oldSecret)
	_, client := secretEnds(t, newSecret)
	if _, err := meet(server, client, "node:1"); err == nil || !strings.Contains(err.Error(), "none of this process's secrets") {
		t.Errorf("the dialling end says %v", err)
	}
	client = client.Clone()
	client.InsecureSkipVerify = true // a client that does not care whom it talks to
	serverErr, clientErr := meet(server, client, "node:1")
	if serverErr == nil || !strings.Contains(serverErr.Error(), "unknown authority") {
		t.Errorf("the dialled end says %v", serverErr)
	}
	if clientErr == nil || !strings.Contains(clientErr.Error(), "refuses this process") {
		t.Errorf("the dialling end that does not care says %v", clientErr)
	}
}

// Contract: S2
func TestClientWithoutACertificateIsRefused(t *testing.T) {
	server, client := secretEnds(t, oldSecret)
	client = client.Clone()
	client.Certificates = nil
	if serverErr, clientErr := meet(server, client, "node:1"); serverErr == nil || clientErr == nil {
		t.Errorf("the ends say %v and %v", serverErr, clientErr)
	}
}

// Contract: S2
func TestOnlyTLS13IsSpokenWithSecrets(t *testing.T) {
	server, client := secretEnds(t, oldSecret)
	client = client.Clone()
	client.MinVersion, client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if serverErr, _ := meet(server, client, "node:1"); serverErr == nil {
		t.Error("TLS 1.2 was accepted")
	}
}

// Contract: S2, O3
func TestSecretRotatesInThreeDeploysWithoutARefusal(t *testing.T) {
	steps := [][]string{{oldSecret}, {oldSecret, newSecret}, {newSecret, oldSecret}, {newSecret}}
	for i := range steps[1:] {
		// During a deploy processes of both steps are there.
		for _, a := range steps[i : i+2] {
			for _, b := range steps[i : i+2] {
				server, _ := secretEnds(t, a...)
				_, client := secretEnds(t, b...)
				if serverErr, clientErr := meet(server, client, "node:1"); serverErr != nil || clientErr != nil {
					t.Errorf("deploy %d: %v, %v", i+1, serverErr, clientErr)
				}
			}
		}
	}
	server, _ := secretEnds(t, newSecret)
	_, client := secretEnds(t, oldSecret)
	if _, err := meet(server, client, "node:1"); err == nil {
		t.Error("the dropped secret is still accepted")
	}
}

// Contract: S2
func TestNoClockMattersWithSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the year 2000, and a process that was started 90 years earlier
		server, _ := secretEnds(t, oldSecret)
		time.Sleep(90 * 365 * 24 * time.Hour)
		_, client := secretEnds(t, oldSecret)
		if serverErr, clientErr := meet(server, client, "node:1"); serverErr != nil || clientErr != nil {
			t.Errorf("90 years apart: %v, %v", serverErr, clientErr)
		}
	})
	server, client := secretEnds(t, oldSecret)
	if server.Time().Year() != 2000 || client.Time().Year() != 2000 {
		t.Errorf("certificates are judged as of %v and %v", server.Time(), client.Time())
	}
}

// Contract: S1, S2
func TestShortSecretIsNamedByItsPlaceAndNeverShown(t *testing.T) {
	for _, c := range []struct {
		secrets []string
		want    string
	}{
		{nil, "Config.Secrets is empty"},
		{[]string{""}, "Config.Secrets[0] has 0 bytes"},
		{[]string{oldSecret, "hunter2"}, "Config.Secrets[1] has 7 bytes"},
	} {
		_, _, err := tlsFromSecrets(c.secrets)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", c.want, err)
		}
	}
}

// serveTLS starts an HTTP server with this end of TLS on loopback and returns its address.
func serveTLS(t *testing.T, server *tls.Config) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{TLSConfig: server, ErrorLog: nil, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Proto) })}
	s.ErrorLog = quiet()
	go s.ServeTLS(listener, "", "")
	t.Cleanup(func() { s.Close() })
	return listener.Addr().String()
}

// Contract: S2
func TestBothVersionsOfHTTPRunOverTheDialler(t *testing.T) {
	server, client := secretEnds(t, oldSecret)
	addr := serveTLS(t, server)
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		only := client.Clone()
		transport := &http.Transport{Protocols: new(http.Protocols)}
		if proto == "HTTP/1.1" {
			only.NextProtos = []string{"http/1.1"}
			transport.Protocols.SetHTTP1(true)
		} else {
			transport.Protocols.SetHTTP2(true)
		}
		transport.DialTLSContext = tlsDialer(new(net.Dialer).DialContext, only)
		res, err := (&http.Client{Transport: transport}).Get("https://" + addr)
		if err != nil {
			t.Fatalf("%s: %v", proto, err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != proto {
			t.Errorf("%s: the server saw %q", proto, body)
		}
		transport.CloseIdleConnections()
	}
}

// In TLS 1.3 a client learns only after its handshake that it was refused: the reason must still be told.
//
// Contract: S2
func TestRefusalIsExplainedThroughHTTP(t *testing.T) {
	server, _ := secretEnds(t, oldSecret)
	_, client := secretEnds(t, newSecret)
	client.InsecureSkipVerify = true
	client.NextProtos = []string{"http/1.1"}
	addr := serveTLS(t, server)
	transport := &http.Transport{DialTLSContext: tlsDialer(new(net.Dialer).DialContext, client)}
	_, err := (&http.Client{Transport: transport}).Get("https://" + addr)
	if err == nil || !strings.Contains(explainTLS(err).Error(), "refuses this process") {
		t.Errorf("error is %v", explainTLS(err))
	}
}

func TestPlainServerIsToldFromOneThatSpeaksTLS(t *testing.T) {
	_, client := secretEnds(t, oldSecret)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ErrorLog: quiet()}
	go s.Serve(listener)
	defer s.Close()
	_, err = tlsDialer(new(net.Dialer).DialContext, client)(t.Context(), "tcp", listener.Addr().String())
	if err = explainTLS(err); err == nil || !strings.Contains(err.Error(), "does not speak TLS") || !strings.Contains(err.Error(), listener.Addr().String()) {
		t.Errorf("error is %v", err)
	}
}

func TestHandshakeEndsWithItsContext(t *testing.T) {
	_, client := secretEnds(t, oldSecret)
	synctest.Test(t, func(t *testing.T) {
		a, b := net.Pipe()
		defer a.Close()
		go io.Copy(io.Discard, a) // accepts, never answers
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		dial := func(context.Context, string, string) (net.Conn, error) { return b, nil }
		if _, err := tlsDialer(dial, client)(ctx, "tcp", "node:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error is %v", err)
		}
	})
}

// counted counts the bytes that a connection's reader gets.
type counted struct {
	net.Conn
	read *atomic.Int64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// A handshake with secrets, both ends in one process: ns/op is the work of both, and the bytes are those of each direction.
func BenchmarkHandshakeWithSecrets(b *testing.B) {
	server, _ := secretEnds(b, oldSecret, newSecret)
	_, client := secretEnds(b, oldSecret, newSecret)
	var toServer, toClient atomic.Int64
	n := 0
	for b.Loop() {
		x, y := newMemoryConns()
		if serverErr, clientErr := meetOver(counted{x, &toServer}, counted{y, &toClient}, server, client, "node:1"); serverErr != nil || clientErr != nil {
			b.Fatal(serverErr, clientErr)
		}
		n++
	}
	b.ReportMetric(float64(toServer.Load())/float64(n), "B-to-server")
	b.ReportMetric(float64(toClient.Load())/float64(n), "B-to-client")
}

func BenchmarkTLSFromSecrets(b *testing.B) {
	for b.Loop() {
		secretEnds(b, oldSecret, newSecret)
	}
}
