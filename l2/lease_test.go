// The lease of a claim over time: renewed for as long as a load takes, replaced when its holder dies.

package l2_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
)

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
