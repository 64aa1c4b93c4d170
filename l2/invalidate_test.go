// What other clusters hear of an invalidation.

package l2_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/onefill/onefill"
)

// Contract: I4
func TestManyKeysAreInvalidatedWithOneMessage(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		deleter, _ := w.process()
		other, hears := w.process()
		keys := make([]string, 1000)
		if w.pause != nil {
			keys = keys[:5] // more than fits into the buffers of a connection that is a pipe blocks both sides
		}
		for i := range keys {
			keys[i] = "k" + strconv.Itoa(i)
		}
		awaitHearing(t, w, deleter, hears)
		k := onefill.TierKey{Group: key.Group, Version: key.Version, Key: "k3"}
		granted := claimKey(t, other, k, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		number := invalidate(t, deleter, keys...)
		fill(t, granted.Claim, value("old"), false)
		<-hears.news
		all := hears.invalidations()
		last := all[len(all)-1]
		if len(last.Keys) != len(keys) || last.Number != number || last.Group != "users" || last.Version != "1" {
			t.Fatalf("heard %d keys of %q %q with number %d, want %d with %d", len(last.Keys), last.Group, last.Version, last.Number, len(keys), number)
		}
	})
}

// awaitHearing waits until what one process says is heard by another.
func awaitHearing(t *testing.T, w *world, from onefill.Tier, to *member) {
	t.Helper()
	for range 1000 {
		invalidate(t, from, "whether anyone hears")
		if w.memory != nil {
			<-to.news
			return
		}
		select {
		case <-to.news:
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("nothing is heard")
}

// Contract: I1
func TestOtherClustersHearOfAnInvalidationByteForByte(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		deleter, _ := w.process()
		_, hears := w.process()
		awaitHearing(t, w, deleter, hears)
		for len(hears.news) > 0 {
			<-hears.news
		}
		inv := &onefill.Invalidation{Group: "\xff:{", Version: "", Keys: []string{"\x00\xff\r\n"}, Trace: "00-1-2-01"}
		number, err := deleter.Invalidate(context.Background(), inv, 0)
		if err != nil {
			t.Fatal(err)
		}
		<-hears.news
		all := hears.invalidations()
		got := all[len(all)-1]
		if got.Group != inv.Group || got.Keys[0] != inv.Keys[0] || got.Trace != inv.Trace || got.Number != number || got.Value != nil {
			t.Fatalf("heard %+v, want %+v with number %d", got, inv, number)
		}
	})
}

// Contract: I2
func TestInvalidationNumberExceedsWhatItsCallerKnows(t *testing.T) {
	inEveryWorld(t, func(t *testing.T, w *world) {
		tier, m := w.process()
		high := uint64(time.Now().Add(time.Hour).UnixMicro())
		inv := &onefill.Invalidation{Group: key.Group, Version: key.Version, Keys: []string{"42", "43"}}
		number, err := tier.Invalidate(context.Background(), inv, high)
		if err != nil || number <= high {
			t.Fatalf("number %d, %v; want it above %d", number, err, high)
		}
		if m.Clock() <= number {
			t.Fatalf("the mesh's clock is %d after an invalidation %d", m.Clock(), number)
		}
	})
}
