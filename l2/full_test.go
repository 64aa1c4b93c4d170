// A server that has no memory left, at each of the tier's scripts.

package l2_test

import (
	"context"
	"strings"
	"testing"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
)

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
