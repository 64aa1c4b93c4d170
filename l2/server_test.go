// What a real server does to the tier: hanging, refusing, full, forgetting, and keys under which somebody else has written.

package l2_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

// full makes a server refuse every write that takes memory, until the function that it returns is called.
func full(t *testing.T, w *world) (room func()) {
	t.Helper()
	limit := func(n string) {
		if err := w.client.ConfigSet(context.Background(), "maxmemory", n).Err(); err != nil {
			t.Fatal(err)
		}
	}
	limit("1")
	return func() { limit("0") }
}

// Contract: L8, L19
func TestFullServerAtEachScript(t *testing.T) {
	ctx := context.Background()
	isFull := func(t *testing.T, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "OOM") {
			t.Fatalf("got %v, want an OOM error", err)
		}
	}
	for name, scenario := range map[string]func(t *testing.T, w *world, tier, other onefill.Tier){
		"claim": func(t *testing.T, w *world, tier, other onefill.Tier) {
			full(t, w)
			_, err := tier.Claim(ctx, key, onefill.ClaimAsk{Flight: 1})
			isFull(t, err)
		},
		"hit": func(t *testing.T, w *world, tier, other onefill.Tier) {
			set(t, tier, value("x"))
			full(t, w)
			found(t, other, "x")
		},
		"held": func(t *testing.T, w *world, tier, other onefill.Tier) {
			claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
			full(t, w)
			claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		},
		"fill": func(t *testing.T, w *world, tier, other onefill.Tier) {
			old := set(t, tier, value("old")) + 1
			granted := claim(t, tier, onefill.ClaimAsk{Flight: 1, Have: old}, onefill.ClaimGranted)
			claim(t, other, onefill.ClaimAsk{Flight: 2, Have: old}, onefill.ClaimHeld)
			room := full(t, w)
			_, err := granted.Claim.Fill(ctx, value("new"))
			isFull(t, err)
			room()
			again := claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted) // neither the claim nor the old value is in the way
			fill(t, again.Claim, value("newer"), true)
		},
		"abandon": func(t *testing.T, w *world, tier, other onefill.Tier) {
			granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
			held := claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
			full(t, w)
			if err := granted.Claim.Abandon(ctx, &onefill.Answer{Status: onefill.StatusError, Text: "no"}); err != nil {
				t.Fatal(err)
			}
			if got := claim(t, other, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimFailed); got.Value.Text != "no" {
				t.Fatalf("those who waited got %+v", got.Value)
			}
		},
		"renew": func(t *testing.T, w *world, tier, other onefill.Tier) {
			granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
			full(t, w)
			granted.Claim.Waits([]uint64{1, 2}) // renews, and may be refused to say so
			claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		},
		"invalidate": func(t *testing.T, w *world, tier, other onefill.Tier) {
			old := set(t, tier, value("old")) + 1
			granted := claim(t, tier, onefill.ClaimAsk{Flight: 1, Have: old}, onefill.ClaimGranted)
			room := full(t, w)
			if n := invalidate(t, other, "42"); n <= granted.Fence {
				t.Fatalf("the invalidation has number %d, the load %d", n, granted.Fence)
			}
			room()
			fill(t, granted.Claim, value("old"), false)
			claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted)
		},
		"set": func(t *testing.T, w *world, tier, other onefill.Tier) {
			old := set(t, tier, value("old")) + 1
			granted := claim(t, tier, onefill.ClaimAsk{Flight: 1, Have: old}, onefill.ClaimGranted)
			room := full(t, w)
			set(t, other, value("new"))
			room()
			fill(t, granted.Claim, value("old"), false)
			claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted) // neither old nor new
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := inRealTime(t, redistest.Start(t))
			tier, _ := w.process()
			other, _ := w.process()
			defer w.client.ConfigSet(ctx, "maxmemory", "0")
			scenario(t, w, tier, other)
			if tier.State() != "up" || other.State() != "up" {
				t.Fatalf("a full server answers, and the tier is %s", tier.State())
			}
		})
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

// Contract: L13
func TestForeignTypeUnderAKeyIsAMiss(t *testing.T) {
	ctx := context.Background()
	plant := map[string]func(c *redis.Client, name string) error{
		"string": func(c *redis.Client, name string) error { return c.Set(ctx, name, "what is this", 0).Err() },
		"number": func(c *redis.Client, name string) error { return c.Set(ctx, name, "9e300", 0).Err() },
		"nan":    func(c *redis.Client, name string) error { return c.Set(ctx, name, "nan", 0).Err() },
		"list":   func(c *redis.Client, name string) error { return c.RPush(ctx, name, "a", "b").Err() },
		"hash":   func(c *redis.Client, name string) error { return c.HSet(ctx, name, "t", "a", "f", "b").Err() },
		"claim":  func(c *redis.Client, name string) error { return c.HSet(ctx, name, "t", "a", "f", "17").Err() }, // without an end
		"stream": func(c *redis.Client, name string) error {
			return c.XAdd(ctx, &redis.XAddArgs{Stream: name, Values: []string{"a", "b"}}).Err()
		},
	}
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("x"), true)
		names := make(map[byte]string)
		for _, kind := range []byte("vlfe") {
			names[kind] = strings.Replace(w.named('f'), "}:f:", "}:"+string(kind)+":", 1)
		}
		for kind, name := range names {
			for what, put := range plant {
				t.Logf("a %s under %c", what, kind)
				w.client.Del(ctx, names['v'], names['l'], names['f'], names['e'])
				if err := put(w.client, name); err != nil {
					t.Fatal(err)
				}
				granted := claim(t, tier, onefill.ClaimAsk{Flight: 1, Waited: 17}, onefill.ClaimGranted)
				if granted.Fence < 1e14 || granted.Fence > 9e15 {
					t.Fatalf("the fence is %d", granted.Fence)
				}
				w.client.Del(ctx, name)
				if err := put(w.client, name); err != nil {
					t.Fatal(err)
				}
				fill(t, granted.Claim, value("x"), kind != 'f') // without its fence a load cannot be told from one that comes too late
				if kind != 'f' {
					found(t, tier, "x")
				}
				w.client.Del(ctx, name)
				if err := put(w.client, name); err != nil {
					t.Fatal(err)
				}
				set(t, tier, value("y"))
				found(t, tier, "y")
			}
		}
	})
}

// Contract: L13, T7
func TestDamagedValueIsLoadedAgainWithAWarning(t *testing.T) {
	ctx := context.Background()
	for name, damage := range map[string]func(v string) string{
		"cut in half":       func(v string) string { return v[:len(v)/2] },
		"cut to its header": func(v string) string { return v[:51] },
		"a bit flipped":     func(v string) string { return v[:60] + string(v[60]^1) + v[61:] },
		"number flipped":    func(v string) string { return v[:4] + string(v[4]^1) + v[5:] },
		"numbers too large": func(v string) string { return v[:4] + strings.Repeat("9", 32) + v[36:] },
		"newer release":     func(v string) string { return "1fe2" + v[4:] },
		"plain text":        func(string) string { return `{"name":"Ann"}` },
		"empty":             func(string) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			inRedis(t, func(t *testing.T, w *world) {
				tier, _ := w.process()
				set(t, tier, value(strings.Repeat("Ann", 20)))
				v := w.client.Get(ctx, w.named('v')).Val()
				if err := w.client.Set(ctx, w.named('v'), damage(v), time.Minute).Err(); err != nil {
					t.Fatal(err)
				}
				granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
				if granted.Fence > 9e15 {
					t.Fatalf("the fence is %d", granted.Fence)
				}
				waiter, _ := w.process()
				claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
				fill(t, granted.Claim, value("new"), true)
				found(t, tier, "new")
				if n := w.log.count("cannot be read"); n > 2 {
					t.Fatalf("%d warnings", n)
				}
			})
		})
	}
}

// Contract: L15, O3
func TestValueEncryptedWithAnUnknownKeyIsLoadedAgain(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		keyed := func(c byte) func(*l2.Config) {
			return func(cfg *l2.Config) {
				cfg.Keys = []l2.Key{{ID: string(c), Secret: []byte(strings.Repeat(string(c), 32))}}
			}
		}
		one, _ := w.process(keyed('1'))
		two, _ := w.process(keyed('2'))
		set(t, one, value("one"))
		if raw := w.client.Get(context.Background(), w.named('v')).Val(); strings.Contains(raw, "one") {
			t.Fatal("the value stands in Redis as it is")
		}
		fill(t, claim(t, two, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("two"), true)
		found(t, two, "two")
		claim(t, one, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	})
}

// Contract: L7
func TestClaimThatIsGrantedAfterItsCallerLeftIsGivenBack(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	tier, _ := w.process()
	ctx, cancel := context.WithCancel(t.Context())
	if err := w.client.ClientPause(t.Context(), 300*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := tier.Claim(ctx, key, onefill.ClaimAsk{Flight: 1})
		answered <- err
	}()
	time.AfterFunc(100*time.Millisecond, cancel)
	if err := <-answered; !errors.Is(err, context.Canceled) {
		t.Fatalf("a claim that was cancelled: %v", err)
	}
	eventually(t, "the claim to be given back", func() bool {
		reply, err := w.client.Keys(t.Context(), "*:l:*").Result()
		return err == nil && len(reply) == 0 && w.client.Keys(t.Context(), "*:f:*").Val() != nil
	})
	if tier.State() != "up" {
		t.Fatalf("a caller that leaves makes the tier %s", tier.State())
	}
}

// Contract: L9
func TestFillThatTheTierDidNotTakeIsStoredWhenItIsBack(t *testing.T) {
	server := redistest.Start(t)
	w := inRealTime(t, server)
	tier, _ := w.process(quick)
	granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	server.Pause()
	began := time.Now()
	if stored, err := granted.Claim.Fill(t.Context(), value("x")); err == nil || stored || time.Since(began) > timely {
		t.Fatalf("stored %v, %v after %v", stored, err, time.Since(began))
	}
	server.Resume()
	eventually(t, "the value", func() bool {
		reply, err := tier.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 2})
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

// Contract: L3
func TestLoadOfFortySecondsKeepsItsClaim(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		for range 40 {
			w.pause(time.Second)
			if held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld); held.Left < time.Second {
				t.Fatalf("the lease has only %v left", held.Left)
			}
		}
		fill(t, granted.Claim, value("x"), true)
		found(t, waiter, "x")
	})
}

// Contract: L5
func TestHolderThatDiesIsReplacedByOneWaiter(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world) {
		dead := w.open()
		tier, err := l2.Redis(dead, l2.Config{Logger: slog.New(w.log)})
		if err != nil {
			t.Fatal(err)
		}
		if err := tier.Join(newMember("test")); err != nil {
			t.Fatal(err)
		}
		claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		_ = dead.Close() // and with it all that it could still say
		died := time.Now()
		granted := make(chan onefill.Claim, 10)
		values := make(chan string, 10)
		for i := range 10 {
			waiter, _ := w.process()
			go func() {
				var held onefill.ClaimReply
				for {
					reply, err := waiter.Claim(context.Background(), key, onefill.ClaimAsk{Flight: uint64(i + 2), Waited: held.Fence})
					switch {
					case err != nil:
						t.Error(err)
						return
					case reply.State == onefill.ClaimGranted:
						granted <- reply.Claim
						return
					case reply.State == onefill.ClaimValue:
						values <- reply.Value.Data
						return
					}
					held = reply
					if err := waiter.Wait(context.Background(), key, held); err != nil {
						t.Error(err)
						return
					}
				}
			}()
		}
		c := <-granted
		if took := time.Since(died); took > l2.DefaultClaimTTL+500*time.Millisecond {
			t.Fatalf("replaced after %v", took)
		}
		w.pause(10 * time.Second)
		if len(granted)+len(values) != 0 {
			t.Fatalf("%d more claims, %d values while one loads", len(granted), len(values))
		}
		fill(t, c, value("x"), true)
		for range 9 {
			<-values
		}
		_ = tier.Close(context.Background())
	})
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
