// Tests of peers that ask more than they may, and of peers that do not read what they asked for. They speak the wire's own bytes.

package peers_test

import (
	"bytes"
	"context"
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
)

// asker is a peer that the test plays.
type asker struct {
	c  *circle
	id string
	to string // the address of the member that it asks
}

func (a *asker) hello(session uint64) []byte {
	return wire.AppendHello(wire.Begin(nil), &wire.Hello{Namespace: "test", ID: a.id, Incarnation: 7, Session: session})
}

// ask asks for keys, as questions 0 and up, and returns the answers that come with the response.
func (a *asker) ask(session uint64, again bool, keys ...string) map[uint64]*onefill.Answer {
	a.c.t.Helper()
	body := a.hello(session)
	for i, key := range keys {
		body = wire.AppendAsk(body, uint64(i), again, &onefill.Ask{Group: group, Key: key})
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return a.c.net.dial(ctx, "", a.to) }}
	defer transport.CloseIdleConnections()
	req, _ := http.NewRequest(http.MethodPost, "http://"+a.to+"/_onefill/v1", bytes.NewReader(body))
	req.Header.Set("Content-Type", "application/x-onefill")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		a.c.t.Fatal(err)
	}
	defer resp.Body.Close()
	in, answers := wire.NewReader(resp.Body, 1<<30), make(map[uint64]*onefill.Answer)
	for {
		kind, f, err := in.Next()
		if err == io.EOF {
			return answers
		}
		if err != nil {
			a.c.t.Fatal(err)
		}
		if kind == wire.KindAnswer {
			id, answer, err := f.Answer()
			if err != nil {
				a.c.t.Fatal(err)
			}
			answers[id] = answer
		}
	}
}

// listen opens the session's standing stream and reads nothing of it.
func (a *asker) listen(session uint64, every time.Duration) net.Conn {
	a.c.t.Helper()
	conn, err := a.c.net.dial(a.c.t.Context(), "", a.to)
	if err != nil {
		a.c.t.Fatal(err)
	}
	a.c.t.Cleanup(func() { _ = conn.Close() })
	body := wire.AppendListen(a.hello(session), every)
	if _, err := fmt.Fprintf(conn, "%sContent-Length: %d\r\n\r\n%s", requestLine, len(body), body); err != nil {
		a.c.t.Fatal(err)
	}
	return conn
}

// ended reports whether the member has hung up on a connection of which nothing was read.
func ended(conn net.Conn) bool {
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	n, err := conn.Read(make([]byte, 1))
	return n == 0 && err == io.EOF
}

func statuses(answers map[uint64]*onefill.Answer) map[onefill.Status]int {
	n := make(map[onefill.Status]int)
	for _, a := range answers {
		n[a.Status]++
	}
	return n
}

func numbered(word string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(word, i))
	}
	return keys
}

// Contract: S3, P14
func TestPeerAsksNoMoreThanItMayInAllItsSessionsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second)
		c.cfg.MaxPending = 10
		c.start(1)
		greedy, other := &asker{c, "greedy", addr(0)}, &asker{c, "other", addr(0)}
		want := func(when string, got map[uint64]*onefill.Answer, busy int) {
			t.Helper()
			if n := statuses(got); n[onefill.StatusBusy] != busy || len(got) != busy {
				t.Errorf("%s: answers %v, want %d busy", when, n, busy)
			}
		}
		want("six in one session", greedy.ask(1, false, numbered("a", 6)...), 0)
		want("six in another", greedy.ask(2, false, numbered("b", 6)...), 2)
		want("one in a third", greedy.ask(3, false, "c"), 1)
		want("another peer", other.ask(1, false, numbered("d", 10)...), 0)
		time.Sleep(11 * time.Second)
		want("once all is answered", greedy.ask(4, false, numbered("e", 12)...), 2)
		want("what it asked before", greedy.ask(4, true, numbered("e", 10)...), 0)
		time.Sleep(time.Minute) // the sessions are gone, with all that they held
		want("once it was gone", greedy.ask(5, false, numbered("f", 11)...), 1)
		if n := statuses(greedy.ask(6, false, numbered("e", 10)...)); n[onefill.StatusBusy] != 10 {
			t.Errorf("beyond what it may: answers %v", n)
		}
	})
}

// Contract: S3
func TestAnswersThatComeAtOnceGiveTheirRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.cfg.MaxPending = 10
		c.start(1)
		a := &asker{c, "x", addr(0)}
		for i := range 100 {
			if n := statuses(a.ask(uint64(i), false, numbered(fmt.Sprint(i%50, "-"), 10)...)); n[onefill.StatusValue] != 10 {
				t.Fatalf("round %d: answers %v", i, n)
			}
		}
	})
}

// Contract: S3
func TestStreamThatNobodyReadsIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(time.Hour).start(1)
		a := &asker{c, "x", addr(0)}
		a.ask(1, false, "k")
		conn := a.listen(1, time.Second)
		time.Sleep(29 * time.Second)
		before := runtime.NumGoroutine()
		time.Sleep(5 * time.Second)
		if !ended(conn) || runtime.NumGoroutine() >= before {
			t.Errorf("it is still open; %d goroutines of %d are left", runtime.NumGoroutine(), before)
		}
	})
}

// Contract: S3
func TestStreamThatFallsFarBehindIsEndedAndItsAnswersCanBeAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.load = func(context.Context, *member, string) (string, error) {
			time.Sleep(time.Second)
			return strings.Repeat("v", 4<<20), nil
		}
		c.start(1)
		a := &asker{c, "x", addr(0)}
		keys := numbered("k", 20) // 80 MiB
		a.ask(1, false, keys...)
		conn := a.listen(1, time.Second)
		time.Sleep(5 * time.Second)
		if !ended(conn) {
			t.Error("it is still open")
		}
		if answers := a.ask(1, true, keys[0]); answers[0] == nil || len(answers[0].Data) != 4<<20 {
			t.Error("its answer cannot be asked for")
		}
	})
}

// Contract: S3, P4
func TestSecondStreamTakesOverFromOneThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second).start(1)
		a := &asker{c, "x", addr(0)}
		a.ask(1, false, "k")
		first := a.listen(1, time.Second)
		time.Sleep(time.Second)
		second := a.listen(1, time.Second)
		time.Sleep(time.Second)
		if !ended(first) {
			t.Error("the first one is still open")
		}
		heard := make([]byte, 0, 4096)
		for began := time.Now(); time.Since(began) < 20*time.Second && !bytes.Contains(heard, []byte("value of k")); {
			_ = second.SetReadDeadline(time.Now().Add(time.Second))
			buf := make([]byte, 512)
			n, _ := second.Read(buf)
			heard = append(heard, buf[:n]...)
		}
		if !bytes.Contains(heard, []byte("value of k")) {
			t.Errorf("the second one says %q", heard)
		}
	})
}
