// What a real server does to the tier: hanging, refusing, forgetting, cutting off. A full one stands in full_test.go.

package l2_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/l2"
)

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		if holds() {
			return
		}
	}
	t.Fatalf("waited in vain for %s", what)
}

func quick(c *l2.Config) { c.TierTimeout = l2.DefaultTierTimeout }

// timely is how long a call may take that TierTimeout bounds, on a machine under load.
const timely = l2.DefaultTierTimeout + 200*time.Millisecond

// Contract: L8
func TestServerThatHangsCostsTierTimeoutOnceAndTheBreakerClosesAgain(t *testing.T) {
	server := redistest.Start(t)
	w := inRealTime(t, server)
	tier, _ := w.process(quick)
	fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("x"), true)
	server.Pause()
	began := time.Now()
	if _, err := tier.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 2}); err == nil {
		t.Fatal("a server that hangs answers")
	}
	if took := time.Since(began); took > timely {
		t.Fatalf("it cost %v", took)
	}
	if tier.State() == "up" {
		t.Fatal("the tier is believed to be up")
	}
	slow := 0
	for range 100 {
		began := time.Now()
		_, _ = tier.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 2})
		if time.Since(began) > 50*time.Millisecond {
			slow++
		}
	}
	if slow > 1 { // a probe
		t.Fatalf("%d of 100 further calls waited", slow)
	}
	server.Resume()
	eventually(t, "the tier to be up", func() bool { return tier.State() == "up" }) // nobody asks: the tier looks by itself
	found(t, tier, "x")
}

// Contract: L8
func TestServerThatRefusesThePasswordIsDown(t *testing.T) {
	server := redistest.Start(t, "--requirepass", "right")
	w := &world{t: t, log: &memoryLog{}, open: server.Client}
	tier := w.join(server.Client(func(o *redis.Options) { o.Password = "wrong" }), newMember("test"), quick)
	began := time.Now()
	if _, err := tier.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 1}); err == nil || time.Since(began) > timely {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	if tier.State() == "up" || w.log.count("does not answer") != 1 {
		t.Fatalf("the tier is %s, the log has %q", tier.State(), w.log.lines)
	}
	other := w.join(server.Client(func(o *redis.Options) { o.Password = "right" }), newMember("test"))
	claim(t, other, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
}

// Contract: L8
func TestServerThatIsGoneIsDownAndComesBack(t *testing.T) {
	server := redistest.Start(t)
	w := inRealTime(t, server)
	tier, _ := w.process(quick)
	claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	server.Kill()
	began := time.Now()
	if _, err := tier.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 2}); err == nil || time.Since(began) > timely {
		t.Fatalf("%v after %v", err, time.Since(began))
	}
	server.Restart()
	eventually(t, "the tier to be up", func() bool { return tier.State() == "up" })
	claim(t, tier, onefill.ClaimAsk{Flight: 3}, onefill.ClaimGranted) // the restart forgot the claim
}

// Contract: L8, L19
func TestReplicaIsDown(t *testing.T) {
	primary := redistest.Start(t, "--repl-diskless-sync-delay", "0")
	host, port, _ := strings.Cut(primary.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", host+" "+port)
	w := inRealTime(t, replica)
	tier, _ := w.process()
	_, err := tier.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 1})
	if err == nil || tier.State() == "up" {
		t.Fatalf("a replica grants claims: %v, %s", err, tier.State())
	}
}

// Contract: L10
func TestScriptFlushGoesUnnoticed(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		flush := func() {
			t.Helper()
			if err := w.client.ScriptFlush(context.Background()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		flush()
		granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		flush()
		fill(t, granted.Claim, value("x"), true)
		flush()
		found(t, tier, "x")
		flush()
		invalidate(t, tier, "42", "43")
	})
}

// Contract: L10
func TestFlushAllCostsOneMoreLoad(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		other, _ := w.process()
		first := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		if err := w.client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		second := claim(t, other, onefill.ClaimAsk{Flight: 2, Waited: held.Fence, Floor: held.Fence}, onefill.ClaimGranted)
		claim(t, tier, onefill.ClaimAsk{Flight: 3}, onefill.ClaimHeld)
		fill(t, first.Claim, value("first"), false)
		fill(t, second.Claim, value("second"), true)
		found(t, tier, "second")
	})
}

// Contract: L4, L10
func TestSubscriptionThatIsKilledComesBack(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	holder, _ := w.process()
	waiter, hears := w.process()
	awaitHearing(t, w, holder, hears)
	granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	returned := await(t, waiter)
	for range 3 {
		if err := w.client.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err(); err != nil {
			t.Fatal(err)
		}
	}
	landed := time.Now()
	fill(t, granted.Claim, value("x"), true)
	if lag := (<-returned).Sub(landed); lag > time.Second {
		t.Fatalf("a waiter without a subscription returned after %v", lag)
	}
	for len(hears.news) > 0 {
		<-hears.news
	}
	awaitHearing(t, w, holder, hears)
	eventually(t, "the gap to be noticed", func() bool { return w.log.count("may have been missed") > 0 })
}

// foreignClient is a client of a type that nobody knows, whose calls may heed no deadline.
type foreignClient struct{ *redis.Client }

// Contract: L7
func TestClaimThatIsGrantedAfterItsCallerLeftIsGivenBack(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	tier := w.join(foreignClient{w.open()}, newMember("test"))
	fill(t, claimKey(t, tier, onefill.TierKey{Group: "warm"}, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("x"), true)
	if err := w.client.ClientPause(t.Context(), 300*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := tier.Claim(ctx, key, onefill.ClaimAsk{Flight: 1}); !errors.Is(err, context.Canceled) {
		t.Fatalf("a claim that was cancelled: %v", err)
	}
	eventually(t, "the claim to be granted", func() bool { return len(w.client.Keys(t.Context(), "*:f:users:42").Val()) == 1 })
	began := time.Now()
	eventually(t, "the claim to be given back", func() bool { return len(w.client.Keys(t.Context(), "*:l:users:42").Val()) == 0 })
	if took := time.Since(began); took > l2.DefaultClaimTTL/2 {
		t.Fatalf("given back after %v", took)
	}
	if tier.State() != "up" {
		t.Fatalf("a caller that leaves makes the tier %s", tier.State())
	}
}

// Contract: L9
func TestFillThatTheTierDidNotTakeIsStoredWhenItIsBack(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	var cut atomic.Bool
	client := w.open(func(o *redis.Options) {
		addr := o.Addr
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			if cut.Load() {
				return nil, errors.New("unreachable")
			}
			var d net.Dialer
			return d.DialContext(ctx, network, addr)
		}
	})
	tier := w.join(client, newMember("test"), quick)
	granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	cut.Store(true)
	if err := w.client.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if stored, err := granted.Claim.Fill(t.Context(), value("x")); err == nil || stored || time.Since(began) > timely {
		t.Fatalf("stored %v, %v after %v", stored, err, time.Since(began))
	}
	other, _ := w.process()
	claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
	cut.Store(false)
	eventually(t, "the value", func() bool {
		reply, err := other.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 2})
		return err == nil && reply.State == onefill.ClaimValue && reply.Value.Data == "x"
	})
}

// Contract: L6
func TestHolderLearnsFromItsOwnClockThatItsLeaseIsOver(t *testing.T) {
	server := redistest.Start(t)
	w := inRealTime(t, server)
	tier, _ := w.process(quick, func(c *l2.Config) { c.ClaimTTL = 300 * time.Millisecond })
	claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	server.Pause()
	defer server.Resume()
	eventually(t, "the holder to notice", func() bool { return w.log.count("a claim was lost") == 1 })
}

// Contract: L2, L19
func TestUncontendedFillIsTwoRoundTripsAndPublishesNothing(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	tier, _ := w.process()
	fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("x"), true) // the server knows the scripts
	invalidate(t, tier, "42")
	stats := func(command string) (n int) {
		info := w.client.Info(t.Context(), "commandstats").Val()
		_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
		_, _ = fmt.Sscanf(rest, "%d", &n)
		return n
	}
	monitor := w.client.Do(t.Context(), "CONFIG", "RESETSTAT")
	if monitor.Err() != nil {
		t.Fatal(monitor.Err())
	}
	fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("x"), true)
	found(t, tier, "x")
	canaries := stats("publish")
	if n := stats("evalsha"); n-canaries != 3 || stats("eval") != 0 {
		t.Fatalf("%d scripts beside %d signs of life, want 3: claim, fill, read", n-canaries, canaries)
	}
}

// Contract: I8
func TestSubscriptionThatWasLeftOnAnOldPrimaryIsNoticed(t *testing.T) {
	old, now := redistest.Start(t), redistest.Start(t)
	w := inRealTime(t, old)
	var addr atomic.Pointer[string]
	dialTo := func(s *redistest.Server) { a := s.Addr(); addr.Store(&a) }
	dialTo(old)
	follow := func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, *addr.Load())
		}
	}
	speaker := w.join(w.open(follow), newMember("test"))
	hears := newMember("test")
	w.join(w.open(follow), hears)
	awaitHearing(t, w, speaker, hears)
	dialTo(now)
	if err := w.client.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, "the gap to be noticed", func() bool { return w.log.count("no message of one's own") > 0 })
	if took := time.Since(began); took > 4*time.Second {
		t.Fatalf("noticed after %v", took)
	}
	for len(hears.news) > 0 {
		<-hears.news
	}
	awaitHearing(t, w, speaker, hears) // through the new primary
}
