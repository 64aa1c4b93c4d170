// One fill across processes, on every kind of tier: who gets what of a Claim, and when.

package l2_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
)

// Contract: L1, L2
func TestOneOfManyIsGrantedAndTheOthersGetItsValue(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		first, _ := w.process()
		granted := claim(t, first, onefill.ClaimAsk{Flight: 7}, onefill.ClaimGranted)
		second, _ := w.process()
		held := claim(t, second, onefill.ClaimAsk{Flight: 8}, onefill.ClaimHeld)
		if held.Fence != granted.Fence || !slices.Equal(held.Waits, []uint64{7}) {
			t.Fatalf("held by %d, waits %v; granted was %d to flight 7", held.Fence, held.Waits, granted.Fence)
		}
		if held.Left <= 0 || held.Left > l2.DefaultClaimTTL {
			t.Fatalf("the lease has %v left", held.Left)
		}
		a := &onefill.Answer{
			Status: onefill.StatusValue, Data: "Ann", Life: time.Minute, Delta: 3 * time.Millisecond, Tags: []string{"a", "b"},
			Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		}
		fill(t, granted.Claim, a, true)
		got := found(t, second, "Ann").Value
		if got.Number != granted.Fence || got.Delta != a.Delta || !slices.Equal(got.Tags, a.Tags) || got.Trace != a.Trace || got.Final {
			t.Fatalf("got %+v, want %+v with number %d", got, a, granted.Fence)
		}
		if got.Life <= 50*time.Second || got.Life > time.Minute {
			t.Fatalf("a minute of life has become %v", got.Life)
		}
	})
}

// Contract: L2
func TestOfAHundredClaimsAtOnceOneIsGranted(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		var tiers []onefill.Tier
		for range 5 {
			tier, _ := w.process()
			tiers = append(tiers, tier)
		}
		var granted sync.Map
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				reply, err := tiers[i%len(tiers)].Claim(context.Background(), key, onefill.ClaimAsk{Flight: uint64(i + 1)})
				if err != nil {
					t.Errorf("claim: %v", err)
				}
				if reply.State == onefill.ClaimGranted {
					granted.Store(i, reply.Claim)
				}
			})
		}
		all.Wait()
		n := 0
		granted.Range(func(_, c any) bool { n++; fill(t, c.(onefill.Claim), value("x"), true); return true })
		if n != 1 {
			t.Fatalf("%d claims were granted, want 1", n)
		}
	})
}

// Contract: L4
func TestWaiterIsWokenWhenTheFillLands(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		landed := make(chan time.Time, 1)
		returned := await(t, waiter)
		if w.pause != nil {
			w.pause(777 * time.Millisecond) // between two polls
		}
		landed <- time.Now()
		fill(t, granted.Claim, value("Ann"), true)
		if lag := (<-returned).Sub(<-landed); w.pause != nil && lag > 10*time.Millisecond {
			t.Fatalf("woken after %v", lag)
		}
		found(t, waiter, "Ann")
	})
}

// await waits for the key's value as the read path does, and tells when it had it.
func await(t *testing.T, tier onefill.Tier) <-chan time.Time {
	t.Helper()
	returned := make(chan time.Time, 1)
	go func() {
		defer func() { returned <- time.Now() }()
		var held onefill.ClaimReply
		for {
			reply, err := tier.Claim(context.Background(), key, onefill.ClaimAsk{Flight: 99, Waited: held.Fence})
			if err != nil || reply.State != onefill.ClaimHeld {
				if err != nil || reply.State == onefill.ClaimGranted {
					t.Errorf("who waited got %+v, %v", reply, err)
				}
				return
			}
			held = reply
			if err := tier.Wait(context.Background(), key, held); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return returned
}

// Contract: L4
func TestFillBetweenTheReadAndTheSubscriptionIsNotMissed(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		fill(t, granted.Claim, value("Ann"), true)
		began := time.Now()
		if err := waiter.Wait(t.Context(), key, held); err != nil {
			t.Fatal(err)
		}
		if w.pause != nil && time.Since(began) >= 500*time.Millisecond {
			t.Fatalf("only the timer ended the wait")
		}
		found(t, waiter, "Ann")
	})
}

// Contract: L4
func TestWakeThatCameBeforeTheWaitIsNotMissed(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		if err := waiter.Wait(t.Context(), key, held); err != nil { // until it is subscribed
			t.Fatal(err)
		}
		held = claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		fill(t, granted.Claim, value("Ann"), true)
		synctest.Wait() // the wake has come
		began := time.Now()
		if err := waiter.Wait(t.Context(), key, held); err != nil || time.Since(began) > time.Millisecond {
			t.Fatalf("%v after %v", err, time.Since(began))
		}
	})
}

// Contract: R4
func TestWaitEndsWithItsContext(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		waiter, _ := w.process()
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 3 { // the first may end since it subscribes
			if err := waiter.Wait(ctx, key, held); err == context.Canceled {
				return
			}
		}
		t.Fatal("Wait does not heed its context")
	})
}

// Contract: R7
func TestFailureReachesThoseWhoWaitedAndNobodyElse(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		failure := &onefill.Answer{Status: onefill.StatusPanic, Text: "boom", Stack: "main.go:1"}
		if err := granted.Claim.Abandon(t.Context(), failure); err != nil {
			t.Fatal(err)
		}
		latecomer, _ := w.process()
		other := claim(t, latecomer, onefill.ClaimAsk{Flight: 3}, onefill.ClaimGranted) // it loads again
		for range 20 {
			got := claim(t, waiter, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimFailed).Value
			if got.Status != onefill.StatusPanic || got.Text != "boom" || got.Stack != "main.go:1" {
				t.Fatalf("the failure arrives as %+v", got)
			}
		}
		fill(t, other.Claim, value("Ann"), true)
		found(t, waiter, "Ann")
	})
}

// Contract: R7
func TestFailureIsForgottenAfterASecond(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		if err := granted.Claim.Abandon(t.Context(), &onefill.Answer{Status: onefill.StatusError, Text: "no"}); err != nil {
			t.Fatal(err)
		}
		w.pause(1100 * time.Millisecond)
		claim(t, waiter, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimGranted)
	})
}

// Contract: L16
func TestValueThatIsNotStoredAnswersThoseWhoWaited(t *testing.T) {
	for name, a := range map[string]*onefill.Answer{
		"not to be stored":    {Status: onefill.StatusValue, Data: "Ann", Life: time.Minute, Final: true},
		"life is over":        {Status: onefill.StatusValue, Data: "Ann"},
		"life is nearly over": {Status: onefill.StatusValue, Data: "Ann", Life: time.Microsecond},
		"large":               {Status: onefill.StatusValue, Data: string(make([]byte, 1<<20)), Life: time.Minute, Final: true},
		"no bytes":            {Status: onefill.StatusEncode, Text: "the codec refused"},
	} {
		t.Run(name, func(t *testing.T) {
			inEveryWorld(t, func(t *testing.T, w *world) {
				holder, _ := w.process()
				waiter, _ := w.process()
				granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
				held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
				fill(t, granted.Claim, a, true)
				if w.pause != nil {
					w.pause(time.Millisecond)
				}
				for range 3 {
					got := claim(t, waiter, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimFailed).Value
					if got.Status != a.Status || got.Data != a.Data || !got.Final {
						t.Fatalf("those who waited got %+v", got)
					}
				}
				claim(t, waiter, onefill.ClaimAsk{Flight: 3}, onefill.ClaimGranted) // who did not wait loads
			})
		})
	}
}

// Contract: L16
func TestNotFoundThatIsNotRememberedEndsTheValueThatWas(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("old"), true)
		old := found(t, tier, "old")
		again := claim(t, tier, onefill.ClaimAsk{Flight: 2, Have: old.Value.Number}, onefill.ClaimGranted)
		waiter, _ := w.process()
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 3, Have: old.Value.Number}, onefill.ClaimHeld)
		if err := again.Claim.Abandon(t.Context(), &onefill.Answer{Status: onefill.StatusNotFound}); err != nil {
			t.Fatal(err)
		}
		got := claim(t, waiter, onefill.ClaimAsk{Flight: 3, Have: old.Value.Number, Waited: held.Fence}, onefill.ClaimFailed)
		if got.Value.Status != onefill.StatusNotFound {
			t.Fatalf("those who waited got %+v", got.Value)
		}
		claim(t, waiter, onefill.ClaimAsk{Flight: 4}, onefill.ClaimGranted)
	})
}

// Contract: F7
func TestNotFoundWithALifeIsAValue(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		fill(t, granted.Claim, &onefill.Answer{Status: onefill.StatusNotFound, Life: time.Minute}, true)
		if got := found(t, tier, "").Value; got.Status != onefill.StatusNotFound {
			t.Fatalf("got %+v", got)
		}
	})
}

// Contract: R8
func TestEmptyValueIsAValue(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value(""), true)
		found(t, tier, "")
	})
}

// Contract: P10
func TestClaimOfAProcessThatClosesGoesToOneWhoWaits(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		if err := granted.Claim.Abandon(t.Context(), &onefill.Answer{Status: onefill.StatusClosed}); err != nil {
			t.Fatal(err)
		}
		claim(t, waiter, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimGranted)
	})
}

// Contract: P10
func TestClosingGivesClaimsBack(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		if err := holder.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		waiter, _ := w.process()
		claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted)
		if _, err := holder.Claim(t.Context(), key, onefill.ClaimAsk{Flight: 3}); err == nil {
			t.Fatal("a closed tier grants claims")
		}
	})
}

// Contract: R9
func TestThoseWhoWaitLearnWhatTheHolderWaitsFor(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		granted.Claim.Waits([]uint64{1, 5})
		granted.Claim.Waits([]uint64{1, 5, 6})
		for range 20 {
			if slices.Equal(held.Waits, []uint64{1, 5, 6}) {
				return
			}
			if err := waiter.Wait(t.Context(), key, held); err != nil {
				t.Fatal(err)
			}
			held = claim(t, waiter, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimHeld)
		}
		t.Fatalf("those who wait know of %v", held.Waits)
	})
}

// Contract: F10
func TestRefreshGetsAClaimWhereNothingIsNewer(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("one"), true)
		one := found(t, tier, "one").Value
		granted := claim(t, tier, onefill.ClaimAsk{Flight: 2, Have: one.Number, Floor: one.Number}, onefill.ClaimGranted)
		if granted.Fence <= one.Number {
			t.Fatalf("fence %d after %d", granted.Fence, one.Number)
		}
		found(t, tier, "one") // who does not have it takes it meanwhile
		fill(t, granted.Claim, value("two"), true)
		if got := claim(t, tier, onefill.ClaimAsk{Flight: 3, Have: one.Number}, onefill.ClaimValue); got.Value.Data != "two" {
			t.Fatalf("a refresh after another got %q", got.Value.Data)
		}
	})
}

// Contract: L14
func TestWithoutClaimsNobodyWaitsAndValuesAreShared(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		one, _ := w.process()
		two, _ := w.process()
		ask := onefill.ClaimAsk{Flight: 1, NoClaim: true}
		first := claim(t, one, ask, onefill.ClaimGranted)
		second := claim(t, two, ask, onefill.ClaimGranted) // at once
		first.Claim.Waits([]uint64{1, 2})
		fill(t, first.Claim, value("first"), true)
		fill(t, second.Claim, value("second"), true) // may be kept there; the tier has one already
		got := found(t, two, "first").Value
		refresh := claim(t, one, onefill.ClaimAsk{Flight: 3, NoClaim: true, Have: got.Number, Floor: got.Number}, onefill.ClaimGranted)
		if refresh.Fence <= got.Number {
			t.Fatalf("a refresh of %d has number %d", got.Number, refresh.Fence)
		}
		fill(t, refresh.Claim, value("third"), true)
		found(t, two, "third")

		number := invalidate(t, two, "42")
		after := claim(t, one, ask, onefill.ClaimGranted)
		if after.Fence <= number {
			t.Fatalf("a load after the invalidation %d has number %d", number, after.Fence)
		}
		if err := after.Claim.Abandon(t.Context(), &onefill.Answer{Status: onefill.StatusError, Text: "no"}); err != nil {
			t.Fatal(err)
		}
		old := claim(t, two, ask, onefill.ClaimGranted)
		invalidate(t, one, "42")
		fill(t, old.Claim, value("old"), false)
		claim(t, one, onefill.ClaimAsk{Flight: 4}, onefill.ClaimGranted) // nobody holds it
	})
}
