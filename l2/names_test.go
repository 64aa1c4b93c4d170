// Which entries are apart, and that none stays for ever.

package l2_test

import (
	"testing"

	"github.com/onefill/onefill"
)

// Contract: R19
func TestGroupsVersionsAndKeysAreApart(t *testing.T) {
	keys := []onefill.TierKey{
		{Group: "a", Version: "", Key: "b:c"}, {Group: "a:b", Version: "", Key: "c"}, {Group: "a", Version: "1", Key: "b:c"}, {Group: "a1", Key: "b:c"},
		{Group: "a", Key: ""}, {Group: "a", Key: "{x}"}, {Group: "a", Key: "}{"}, {Group: "a", Key: "\x00\xff\n"}, {Group: "{}", Key: "ü%2F"},
	}
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		for i, k := range keys {
			granted := claimKey(t, tier, k, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
			fill(t, granted.Claim, value(string(rune('A'+i))), true)
		}
		for i, k := range keys {
			if got := claimKey(t, tier, k, onefill.ClaimAsk{Flight: 1}, onefill.ClaimValue).Value.Data; got != string(rune('A'+i)) {
				t.Errorf("%q has %q, want %c", k, got, 'A'+i)
			}
		}
	})
}

// Contract: O2
func TestNamespacesShareNothing(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		for _, space := range []string{"shop", "shop:", "shop{", "{}", "{a}b", "%7B", "{"} {
			tier := w.join(w.open(), newMember(space))
			fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value(space), true)
			found(t, tier, space)
		}
	})
}

// Contract: O2
func TestTierRefusesAMeshOfAnotherNamespace(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		if err := tier.Join(newMember("other")); err == nil {
			t.Fatal("two namespaces share a tier")
		}
	})
}

// Contract: L18
func TestEveryKeyHasAnEnd(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		if err := tier.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		check := func(when string, least int) {
			t.Helper()
			all := w.client.Keys(t.Context(), "*").Val()
			if len(all) < least {
				t.Fatalf("%s: %d keys, want %d or more: %q", when, len(all), least, all)
			}
			for _, name := range all {
				if left := w.client.PTTL(t.Context(), name).Val(); left < 0 {
					t.Errorf("%s: %s has no end", when, name)
				}
			}
		}
		granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		claim(t, tier, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		granted.Claim.Waits([]uint64{1, 2})
		check("claimed", 2)
		fill(t, granted.Claim, &onefill.Answer{Status: onefill.StatusValue, Final: true}, true)
		check("not stored", 2)
		set(t, tier, value("x"))
		check("set", 2)
		invalidate(t, tier, "42", "43")
		check("invalidated", 2)
	})
}
