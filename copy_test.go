// What Copy promises about memory that its owner goes on writing to. That callers have a copy each is tested beside the codecs.

package onefill_test

import (
	"context"
	"testing"

	"github.com/onefill/onefill"
)

// Contract: R12
func TestWithCopyBytesMayBeWrittenAfterTheyWereSetOrLoaded(t *testing.T) {
	buffer := []byte("loaded")
	g := newGroup(t, newMesh(t, onefill.Config{}), "bytes", func(context.Context, string) ([]byte, error) { return buffer, nil }, onefill.Copy())
	mine := []byte("set")
	if err := g.Set(t.Context(), "set", mine); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Get(t.Context(), "loaded"); err != nil {
		t.Fatal(err)
	}
	mine[0], buffer[0] = 'X', 'X'
	for _, key := range []string{"set", "loaded"} {
		if v, err := g.Get(t.Context(), key); string(v) != key || err != nil {
			t.Errorf("%s: %q, %v", key, v, err)
		}
	}
}
