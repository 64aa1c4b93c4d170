// Tests of what many questions at once cost: requests, connections, and the patience of those who ask for something that is there.

package peers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
)

// ledger counts the requests that carry questions, by the member that is asked.
type ledger struct {
	mu    sync.Mutex // guards what follows
	asks  map[string]int
	other int
}

// around is a circle's wrap.
func (l *ledger) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		l.note(r.Host, body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

func (l *ledger) note(host string, body []byte) {
	in := wire.NewReader(bytes.NewReader(body), 1<<20)
	asks := 0
	for {
		kind, _, err := in.Next()
		if err != nil {
			break
		}
		if kind == wire.KindAsk {
			asks++
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.asks == nil {
		l.asks = make(map[string]int)
	}
	if asks > 0 {
		l.asks[host]++
	} else {
		l.other++
	}
}

func (l *ledger) requests() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, asked := range l.asks {
		n += asked
	}
	return n
}

// Contract: R15, P9
func TestThousandKeysOverThreeProcessesAreTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newCircle(t), &ledger{}
		c.wrap = l.around
		c.start(3)
		keys := make([]string, 1000)
		for i := range keys {
			keys[i] = fmt.Sprintf("user:%d", i)
		}
		values, err := c.members[0].GetMulti(t.Context(), append(keys, keys[:10]...))
		if err != nil || len(values) != 1000 {
			t.Errorf("%d values, error %v", len(values), err)
		}
		for _, key := range keys {
			if values[key] != "value of "+key {
				t.Errorf("%q has the value %q", key, values[key])
			}
			c.wantLoads(key, c.members[0].pool.Owner(group, key))
		}
		if n := l.requests(); n != 2 {
			t.Errorf("%d requests (%v), want 2", n, l.asks)
		}
	})
}

// Contract: R15
func TestManyLongKeysAreSplitByTheirSizeAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newCircle(t), &ledger{}
		c.wrap = l.around
		c.start(2)
		var keys []string
		for i := range 1000 {
			keys = append(keys, fmt.Sprint(i, strings.Repeat("k", 4000)))
		}
		values, err := c.members[0].GetMulti(t.Context(), keys)
		if err != nil || len(values) != 1000 {
			t.Errorf("%d values, error %v", len(values), err)
		}
		if n := l.requests(); n < 2 || n > 12 { // about 2 MB at the other member, 256 KiB a request
			t.Errorf("%d requests", n)
		}
	})
}

// Contract: R15
func TestFailedPartOfManyKeysIsNeitherRememberedNorInTheWayOfTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		down := true
		good := c.load
		c.load = func(ctx context.Context, m *member, key string) (string, error) {
			if down && !strings.HasPrefix(key, "stored") {
				return "", errSource
			}
			return good(ctx, m, key)
		}
		c.opts = []onefill.Option{onefill.NotFoundTTL(time.Hour)}
		c.start(3)
		keys := []string{"stored 1", "stored 2", "stored 3", "a", "b", "c", "d", "e", "f", "g"}
		for _, key := range keys[:3] {
			c.members[0].must(key, time.Second)
		}
		values, err := c.members[1].GetMulti(t.Context(), keys)
		if len(values) != 3 || err == nil || !strings.Contains(err.Error(), errSource.Error()) {
			t.Errorf("%d values, error %v", len(values), err)
		}
		c.mu.Lock()
		down = false
		c.mu.Unlock()
		if values, err = c.members[1].GetMulti(t.Context(), keys); len(values) != 10 || err != nil {
			t.Errorf("once the source is back: %d values, error %v", len(values), err)
		}
	})
}

// Contract: P8
func TestBurstOfGetsOpensAHandfulOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(100 * time.Millisecond).start(3)
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 2000)
		for range 2 {
			var all []<-chan answer
			for _, key := range keys {
				all = append(all, m.get(key))
			}
			for i, a := range all {
				m.check(keys[i], <-a, 500*time.Millisecond)
			}
			if err := m.Delete(t.Context(), keys...); err != nil {
				t.Error(err)
			}
		}
		if _, most := c.net.open(addr(1)); most > 64 {
			t.Errorf("%d connections at once", most)
		}
		time.Sleep(5 * time.Minute) // idle ones go
		if open, _ := c.net.open(addr(1)); open > 1 {
			t.Errorf("%d connections stay open", open)
		}
	})
}

// Contract: P8, S3
func TestBurstOfDeletesOpensABoundedNumberOfConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.wrap = func(next http.Handler) http.Handler { // a member that takes its time
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Millisecond)
				next.ServeHTTP(w, r)
			})
		}
		c.start(2)
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
		if _, most := c.net.open(addr(1)); most > 64 {
			t.Errorf("%d connections at once", most)
		}
	})
}

// Contract: P9
func TestCachedKeyAnswersAtOnceWhileThousandLoadsAreUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t)
		c.opts = []onefill.Option{onefill.HotTTL(0)}
		c.start(3)
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 1200)
		more := keys[1100:] // loads that begin meanwhile
		keys = keys[:1100]
		for _, key := range keys[1000:] {
			m.must(key, time.Second)
		}
		c.mu.Lock()
		c.slowly(10 * time.Second)
		c.mu.Unlock()
		var all []<-chan answer
		for i, key := range keys[:1000] {
			all = append(all, m.get(key))
			if i%10 == 0 {
				m.must(keys[1000+i/10], 20*time.Millisecond) // in the middle of the rush, where it may need a request's place
			}
		}
		for _, key := range more {
			time.Sleep(50 * time.Millisecond)
			defer func(a <-chan answer) { m.check(key, <-a, 10200*time.Millisecond) }(m.get(key))
			synctest.Wait()
			for _, key := range keys[1000:1010] {
				m.must(key, 10*time.Millisecond)
			}
		}
		for i, a := range all {
			m.check(keys[i], <-a, 10200*time.Millisecond)
			c.wantLoads(keys[i], urlOf(1))
		}
	})
}

// Contract: P9
func TestGetsAtOnceShareRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := newCircle(t), &ledger{}
		c.wrap = l.around
		c.start(2)
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 1000)
		var all []<-chan answer
		for _, key := range keys {
			all = append(all, m.get(key))
		}
		for i, a := range all {
			m.check(keys[i], <-a, time.Second)
		}
		if n := l.requests(); n > 500 { // 1,000 without gathering; the scheduler decides how many come together
			t.Errorf("%d requests for 1000 questions", n)
		}
	})
}

// Contract: P4, R4
func TestForgottenQuestionsEndTheLoadWhereNobodyElseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(time.Minute)
		c.opts = []onefill.Option{onefill.CancelAbandoned()}
		ended := make(chan time.Duration, 1)
		slow := c.load
		began := time.Now()
		c.load = func(ctx context.Context, m *member, key string) (string, error) {
			v, err := slow(ctx, m, key)
			ended <- time.Since(began)
			return v, err
		}
		c.start(3)
		m := c.members[0]
		key := m.keyOf(urlOf(1))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := m.Get(ctx, key); err != context.DeadlineExceeded {
			t.Errorf("error %v", err)
		}
		if took := <-ended; took > 1100*time.Millisecond {
			t.Errorf("the owner's load went on for %v", took)
		}
	})
}

// Contract: P14
func TestBusyPeerIsWaitedForAndNobodyLoadsInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(time.Second)
		c.cfg.MaxPending = 10
		c.start(2)
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 50)
		var all []<-chan answer
		for _, key := range keys {
			all = append(all, m.get(key))
		}
		for i, a := range all {
			m.check(keys[i], <-a, 20*time.Second)
			c.wantLoads(keys[i], urlOf(1))
		}
		if m.Stats().Busy == 0 {
			t.Error("the peer was never busy")
		}
		m.wantState(urlOf(1), "alive")
	})
}

// Contract: P8
func TestSlowLoadsHoldNoRequestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCircle(t).slowly(10 * time.Second).start(2)
		m := c.members[0]
		keys := m.keysOf(urlOf(1), 300)
		var all []<-chan answer
		for _, key := range keys {
			all = append(all, m.get(key))
			time.Sleep(10 * time.Millisecond)
		}
		if _, most := c.net.open(addr(1)); most > 8 {
			t.Errorf("%d connections for slow loads", most)
		}
		for i, a := range slices.Backward(all) {
			m.check(keys[i], <-a, 10100*time.Millisecond)
		}
	})
}
