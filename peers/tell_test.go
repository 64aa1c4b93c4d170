// Tests of what an invalidation takes to reach every member.

package peers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// Contract: I3
func TestDeleteOfACallerThatGivesUpReachesEveryMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(3)
		key := c.members[0].keyOf(urlOf(2))
		for _, m := range c.members {
			m.must(key, time.Second)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, ack := range c.members[0].pool.Spread(ctx, &onefill.Invalidation{Group: group, Keys: []string{key}, Number: 1 << 20}) {
			if ack.Err != nil {
				t.Error(ack.Err)
			}
		}
		_ = c.members[0].Delete(ctx, key)
		time.Sleep(time.Second)
		for _, m := range c.members {
			if _, ok := m.Peek(key); ok {
				t.Errorf("%s still has the value", m.url)
			}
		}
	})
}

// Contract: I1, P8
func TestInvalidationsAtOnceShareAFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most, all atomic.Int64
		c := newCircle(t)
		c.wrap = func(next http.Handler) http.Handler { // a member that takes its time
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if bytes.Contains(body, []byte("key ")) {
					all.Add(1)
					if n := running.Add(1); n > most.Load() {
						most.Store(n)
					}
					defer running.Add(-1)
					time.Sleep(50 * time.Millisecond)
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				next.ServeHTTP(w, r)
			})
		}
		c.start(2)
		c.members[1].must("key 7", time.Second)
		var wait sync.WaitGroup
		for i := range 1000 {
			wait.Add(1)
			go func() {
				defer wait.Done()
				if err := c.members[0].Delete(t.Context(), fmt.Sprint("key ", i)); err != nil {
					t.Error(err)
				}
			}()
		}
		wait.Wait()
		if _, ok := c.members[1].Peek("key 7"); ok {
			t.Error("the value is still there")
		}
		if most.Load() > 8 || all.Load() > 100 {
			t.Errorf("%d requests, %d of them at once", all.Load(), most.Load())
		}
	})
}

// Contract: I9, I3
func TestSilentMemberCostsEachDeleteASecondAndIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.net.mute(addr(2))
		for i := range 2 {
			c.join(urlOf(i), staticOf(3))
		}
		began := time.Now()
		var wait sync.WaitGroup
		for i := range 100 { // more than there are requests at once
			wait.Add(1)
			go func() {
				defer wait.Done()
				var unreached *onefill.InvalidateError
				err := c.members[0].Delete(t.Context(), fmt.Sprint("key ", i))
				if !errors.As(err, &unreached) || fmt.Sprint(unreached.Unreached) != "["+urlOf(2)+"]" {
					t.Errorf("Delete: %v", err)
				}
			}()
		}
		wait.Wait()
		if took := time.Since(began); took > 1100*time.Millisecond {
			t.Errorf("took %v", took)
		}
		c.members[0].wantState(urlOf(1), "alive")
	})
}

// Contract: I9
func TestMemberThatLeftDoesNotCountInADelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).start(3)
		c.members[0].must(c.members[0].keyOf(urlOf(2)), time.Second)
		if err := c.members[2].mesh.Close(t.Context()); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if err := c.members[0].Delete(t.Context(), "key"); err != nil || time.Since(began) > 10*time.Millisecond {
			t.Errorf("Delete: %v after %v", err, time.Since(began))
		}
	})
}

// Contract: P6, I3
func TestOtherSpellingOfThisProcessDoesNotCountInADelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		m := c.join(urlOf(0), dynamic("http://alias:1", urlOf(0)))
		alias := c.net.listen("alias:1")
		go func() { _ = m.pool.Serve(alias) }()
		m.must(m.keyOf("http://alias:1"), time.Second)
		m.wantState("http://alias:1", "misconfigured")
		if err := m.Delete(t.Context(), "key"); err != nil {
			t.Errorf("Delete: %v", err)
		}
	})
}

// Contract: S3, P6
func TestPoolThatBelongsToNoMeshAnswersThatItIsNotReady(t *testing.T) {
	p, err := peers.NewPool("http://127.0.0.1:7946", peers.Static("http://127.0.0.1:7946", "http://127.0.0.1:7947"), peers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func() int {
		w := &status{}
		r, _ := http.NewRequest(http.MethodPost, "http://127.0.0.1:7946/_onefill/v1", bytes.NewReader(hello("x")))
		r.Header.Set("Content-Type", "application/x-onefill")
		p.ServeHTTP(w, r)
		return w.code
	}
	if got := ask(); got != http.StatusServiceUnavailable {
		t.Errorf("before New: status %d", got)
	}
	if acks := p.Spread(t.Context(), &onefill.Invalidation{Group: group, Keys: []string{"k"}}); len(acks) > 0 {
		t.Errorf("Spread before New: %v", acks)
	}
	if err := p.Leave(t.Context()); err != nil {
		t.Errorf("Leave before New: %v", err)
	}
	var asking sync.WaitGroup
	asking.Go(func() {
		for ask() != 0 { // not one status is set: 200
		}
	})
	mesh, err := onefill.New(onefill.Config{Namespace: "test", Peers: p})
	if err != nil {
		t.Fatal(err)
	}
	asking.Wait()
	_ = mesh.Close(t.Context())
}

// status is a response of which only the status counts.
type status struct {
	code   int
	header http.Header
}

func (s *status) Header() http.Header {
	if s.header == nil {
		s.header = make(http.Header)
	}
	return s.header
}
func (s *status) Write(b []byte) (int, error) { return len(b), nil }
func (s *status) WriteHeader(code int)        { s.code = code }
