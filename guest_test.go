// What a guest, a process that the list of members lacks, owes to the members.

package onefill_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// Contract: I1, P6
func TestGuestKeepsNothingThatNobodyCouldDeleteThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		owner := newProcess(t, net, 0, peers.Static(urlOf(0)), onefill.Config{})
		guest := newProcess(t, net, 1, believes{urlOf(0)}, onefill.Config{})
		src := &countingSource{}
		groups := inAll(t, []*process{owner, guest}, "users", src.load)
		cut := func(is bool) {
			net.mu.Lock()
			defer net.mu.Unlock()
			net.cut[addressOf(0)] = is
		}
		cut(true)
		if err := guest.mesh.Ready(t.Context()); err != nil {
			t.Fatal(err)
		}
		if v, err := groups[1].Get(t.Context(), "key"); v != "key/1" || err != nil {
			t.Errorf("while the owner is out of reach: %q, %v", v, err)
		}
		cut(false)
		time.Sleep(5 * time.Second) // it is probed
		if err := groups[0].Delete(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		if v, err := groups[1].Get(t.Context(), "key"); v != "key/2" || err != nil {
			t.Errorf("after a Delete that the guest has not heard of: %q, %v", v, err)
		}
	})
}
