package lease_test

import (
	"testing"
	"time"

	"github.com/onefill/onefill/internal/lease"
)

func TestValidityCountsFromTheSendingWithAMarginForClocks(t *testing.T) {
	sent := time.Now()
	v := lease.ValidFor(sent, 10*time.Second)
	if left := v.Left(sent.Add(time.Second)); left != 10*time.Second-100*time.Millisecond-2*time.Millisecond-time.Second {
		t.Fatalf("%v left", left)
	}
	if ends := v.Ends().Sub(sent); ends != 9898*time.Millisecond {
		t.Fatalf("ends after %v", ends)
	}
	if left := (lease.Validity{}).Left(sent); left > 0 {
		t.Fatalf("the zero Validity has %v left", left)
	}
}

func TestTheClockThatWentFurtherCounts(t *testing.T) {
	sent := time.Now()
	v := lease.ValidFor(sent, 10*time.Second)
	woken := sent.Round(0).Add(time.Hour) // the wall clock alone: a machine that slept for an hour
	if left := v.Left(woken); left > 0 {
		t.Fatalf("%v left after an hour's sleep", left)
	}
}
