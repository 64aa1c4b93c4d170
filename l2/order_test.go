// The interleavings that could bring an old value back or lose a new one, step by step through the tier's scripts.

package l2_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
)

// Contract: I2
func TestInvalidationBetweenClaimAndFillRefusesTheFill(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		loader, _ := w.process()
		deleter, _ := w.process()
		granted := claim(t, loader, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		number := invalidate(t, deleter, "42")
		if number <= granted.Fence {
			t.Fatalf("the invalidation has number %d, the load before it %d", number, granted.Fence)
		}
		fill(t, granted.Claim, value("old"), false)
		again := claim(t, deleter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted)
		if again.Fence <= number {
			t.Fatalf("the load after the invalidation has number %d, the invalidation %d", again.Fence, number)
		}
		fill(t, again.Claim, value("new"), true)
		found(t, loader, "new")
	})
}

// Contract: I2
func TestInvalidationTakesTheClaimAwayAndWakesThoseWhoWait(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		loader, _ := w.process()
		waiter, _ := w.process()
		old := claim(t, loader, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		woken := make(chan onefill.ClaimReply)
		go func() {
			reply := held
			for reply.State == onefill.ClaimHeld {
				_ = waiter.Wait(context.Background(), key, reply)
				reply, _ = waiter.Claim(context.Background(), key, onefill.ClaimAsk{Flight: 2, Waited: held.Fence})
			}
			woken <- reply
		}()
		if w.pause != nil {
			w.pause(777 * time.Millisecond) // between two polls
		}
		dropped := time.Now()
		invalidate(t, loader, "42")
		again := <-woken
		if lag := time.Since(dropped); again.State != onefill.ClaimGranted || w.pause != nil && lag > 10*time.Millisecond {
			t.Fatalf("who waited got %+v after %v", again, lag)
		}
		fill(t, old.Claim, value("old"), false)
		claim(t, loader, onefill.ClaimAsk{Flight: 3}, onefill.ClaimHeld) // the late fill released nothing
		fill(t, again.Claim, value("new"), true)
		found(t, loader, "new")
	})
}

// Contract: L6
func TestLateFillAfterASuccessorIsRefused(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		slow, _ := w.process()
		quick, _ := w.process()
		late := claim(t, slow, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		w.drop('l') // its lease has run out
		next := claim(t, quick, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted)
		fill(t, late.Claim, value("late"), false)
		claim(t, slow, onefill.ClaimAsk{Flight: 3}, onefill.ClaimHeld)
		fill(t, next.Claim, value("right"), true)
		fill(t, late.Claim, value("late"), false)
		found(t, slow, "right")
	})
}

// Contract: L6
func TestLateFillWithoutASuccessorIsStored(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		late := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		w.drop('l')
		fill(t, late.Claim, value("late"), true)
		found(t, tier, "late")
	})
}

// Contract: L6
func TestMissingFenceRefusesTheFill(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		w.drop('f')
		fill(t, granted.Claim, value("x"), false)
		if w.pause != nil {
			w.pause(time.Millisecond) // time is all that is left to tell the fences apart
		}
		next := claim(t, tier, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted) // the claim is gone all the same
		if next.Fence <= granted.Fence {
			t.Fatalf("the fence went from %d to %d", granted.Fence, next.Fence)
		}
	})
}

// Contract: K1
func TestFenceRisesThoughTheClockWasSetBackOrTheFenceIsLost(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		future := uint64(time.Now().Add(time.Hour).UnixMicro())
		first := claim(t, tier, onefill.ClaimAsk{Flight: 1, Floor: future}, onefill.ClaimGranted)
		if first.Fence <= future {
			t.Fatalf("fence %d is not above the floor %d", first.Fence, future)
		}
		fill(t, first.Claim, value("x"), true)
		second := claim(t, tier, onefill.ClaimAsk{Flight: 2, Have: first.Fence}, onefill.ClaimGranted) // the counter knows
		if second.Fence <= first.Fence {
			t.Fatalf("fence %d after %d", second.Fence, first.Fence)
		}
		if err := w.client.FlushAll(context.Background()).Err(); err != nil {
			t.Fatal(err)
		}
		third := claim(t, tier, onefill.ClaimAsk{Flight: 3, Floor: second.Fence}, onefill.ClaimGranted) // the caller knows
		if third.Fence <= second.Fence {
			t.Fatalf("fence %d after %d", third.Fence, second.Fence)
		}
	})
}

// Contract: I2
func TestFailureOfALoadFromBeforeAnInvalidationAnswersNobody(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		loader, _ := w.process()
		waiter, _ := w.process()
		failure := &onefill.Answer{Status: onefill.StatusError, Text: "no"}
		t.Log("invalidated before the failure")
		granted := claim(t, loader, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		invalidate(t, loader, "42")
		if err := granted.Claim.Abandon(context.Background(), failure); err != nil {
			t.Fatal(err)
		}
		second := claim(t, waiter, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimGranted)
		t.Log("invalidated after the failure")
		held = claim(t, loader, onefill.ClaimAsk{Flight: 3}, onefill.ClaimHeld)
		if err := second.Claim.Abandon(context.Background(), failure); err != nil {
			t.Fatal(err)
		}
		invalidate(t, loader, "42")
		claim(t, loader, onefill.ClaimAsk{Flight: 3, Waited: held.Fence}, onefill.ClaimGranted)
	})
}

// Contract: I7
func TestSetOvertakesTheFillThatWasUnderWay(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		loader, _ := w.process()
		setter, _ := w.process()
		granted := claim(t, loader, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		number := set(t, setter, value("set"))
		fill(t, granted.Claim, value("loaded"), false)
		got := found(t, loader, "set").Value
		if got.Number <= number || number <= granted.Fence {
			t.Fatalf("loaded by %d, invalidated by %d, set as %d: want them to rise", granted.Fence, number, got.Number)
		}
		if got.Life <= 50*time.Second || got.Life > time.Minute {
			t.Fatalf("a minute of life has become %v", got.Life)
		}
	})
}

// Contract: I7
func TestTheLaterOfTwoSetsStays(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		one, _ := w.process()
		two, _ := w.process()
		first := set(t, one, value("one"))
		second := set(t, two, value("two"))
		if second <= first+1 {
			t.Fatalf("the second Set has number %d, the value of the first %d", second, first+1)
		}
		found(t, one, "two")
	})
}

// Contract: I7
func TestSetValueThatIsNotToBeStoredStillDropsTheOldOne(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		set(t, tier, value("old"))
		large := value("large")
		large.Final = true
		set(t, tier, large)
		claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	})
}

// Contract: L7
func TestReleaseAndRenewalTouchOnlyOnesOwnClaim(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		slow, _ := w.process()
		quick, _ := w.process()
		lost := claim(t, slow, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		w.drop('l')
		held := claim(t, quick, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted)
		before := w.client.HGetAll(context.Background(), w.named('l')).Val()
		lost.Claim.Waits([]uint64{1, 9}) // makes it renew
		if err := lost.Claim.Abandon(context.Background(), &onefill.Answer{Status: onefill.StatusError, Text: "no"}); err != nil {
			t.Fatal(err)
		}
		if after := w.client.HGetAll(context.Background(), w.named('l')).Val(); after["t"] != before["t"] || after["f"] != before["f"] || after["n"] != before["n"] {
			t.Fatalf("another's claim changed from %v to %v", before, after)
		}
		fill(t, held.Claim, value("right"), true)
		found(t, slow, "right")
	})
}

// Contract: L3
func TestClaimThatVanishedIsTakenBackIfNobodyElseWasGrantedOne(t *testing.T) {
	inFakeTime(t, func(t *testing.T, w *world) {
		holder, _ := w.process()
		waiter, _ := w.process()
		granted := claim(t, holder, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		w.drop('l')
		w.pause(1100 * time.Millisecond) // one renewal
		if held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld); held.Fence != granted.Fence {
			t.Fatalf("held by %d, want %d", held.Fence, granted.Fence)
		}
		fill(t, granted.Claim, value("x"), true)
	})
}

// Contract: L7
func TestRenewalAfterTheEndDoesNotBringTheClaimBack(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		for _, end := range []func(onefill.Claim){
			func(c onefill.Claim) { fill(t, c, &onefill.Answer{Status: onefill.StatusValue, Final: true}, true) },
			func(c onefill.Claim) {
				_ = c.Abandon(context.Background(), &onefill.Answer{Status: onefill.StatusError})
			},
			func(c onefill.Claim) { _ = c.Abandon(context.Background(), nil) },
		} {
			granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
			held := w.client.HGetAll(context.Background(), w.named('l')).Val()
			end(granted.Claim)
			renewed := w.run(l2.ScriptRenew, held["t"], held["f"], 3000, held["n"], 600000)
			if renewed != int64(0) {
				t.Fatalf("a renewal that was under way brought the claim back")
			}
		}
	})
}

// Contract: L6
func TestFillThatIsSentTwiceIsStoredOnce(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		fill(t, granted.Claim, value("x"), true)
		fill(t, granted.Claim, value("x"), true) // the reply was lost
		invalidate(t, tier, "42")
		fill(t, granted.Claim, value("x"), false)
		claim(t, tier, onefill.ClaimAsk{Flight: 2}, onefill.ClaimGranted)
	})
}

// Contract: L7
func TestClaimWhoseReplyWasLostIsRecognised(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		first := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		token := w.client.HGet(context.Background(), w.named('l'), "t").Val()
		zero := strings.Repeat("0", 16)
		reply, _ := w.run(l2.ScriptClaim, token, 3000, zero, zero, "0", "", 600000).([]any) // as the client sends it again
		if len(reply) != 5 || reply[0] != int64(onefill.ClaimGranted) || reply[1] != fmt.Sprintf("%016d", first.Fence) {
			t.Fatalf("the second reply to one attempt is %v", reply)
		}
	})
}
