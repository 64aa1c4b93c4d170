// What counts as a value's memory.

package onefill

import (
	"reflect"
	"testing"
	"time"
)

// A time points to its zone, which all times of that zone share.
//
// Contract: O4
func TestZoneOfATimeIsNoPartOfItsSize(t *testing.T) {
	type order struct{ At time.Time }
	for name, zone := range map[string]*time.Location{"UTC": time.UTC, "another": time.FixedZone("another", 3600)} {
		v := reflect.ValueOf(order{time.Now().In(zone)})
		if n := sizeOf(v); uintptr(n) != v.Type().Size() {
			t.Errorf("%s: %d bytes, want %d", name, n, v.Type().Size())
		}
	}
}
