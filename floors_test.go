// Keys share the floors that invalidations raise. What that must not cost keys that nobody invalidated.

package onefill_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// Where a raised floor made an owner load its neighbours' keys again, their numbers would raise floors in turn: one Delete would be felt for ever.
//
// Contract: F1, R3
func TestDeleteCausesNoLoadOfOtherKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 3)
		src := &countingSource{}
		groups := inAll(t, all, "users", src.load, onefill.TTL(time.Hour), onefill.HotTTL(0))
		const n = 300
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint(i)
		}
		read := func() {
			t.Helper()
			for i, g := range groups {
				if _, err := g.GetMulti(t.Context(), keys); err != nil || src.total() != n {
					t.Fatalf("process %d: %d keys were loaded %d times, %v", i, n, src.total(), err)
				}
			}
		}
		read()
		others := make([]string, 60_000) // more than there are floors
		for i := range others {
			others[i] = fmt.Sprint("other ", i)
		}
		if err := groups[0].Delete(t.Context(), others...); err != nil {
			t.Fatal(err)
		}
		read()
		read()
	})
}
