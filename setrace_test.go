// Set against loads that begin while it is under way.

package onefill_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// slowCodec takes its time over values that begin with an S.
type slowCodec struct{}

func (slowCodec) Encode(v string) ([]byte, error) {
	if v[0] == 'S' {
		time.Sleep(slow)
	}
	return []byte(v), nil
}

func (slowCodec) Decode(data []byte) (string, error) {
	if data[0] == 'S' {
		time.Sleep(slow)
	}
	return string(data), nil
}

// The value that is set takes long to encode and to decode; loads begin and end at every moment of that.
//
// Contract: I2, I7
func TestLoadThatBeganWhileASetWasUnderWayDoesNotReplaceItsValue(t *testing.T) {
	for took := slow / 20; took < 3*slow; took += slow / 5 {
		synctest.Test(t, func(t *testing.T) {
			load := func(context.Context, string) (string, error) { time.Sleep(took); return "loaded", nil }
			g := newGroup(t, newMesh(t, onefill.Config{}), "users", load, onefill.WithCodec[string](slowCodec{}))
			ctx, stop := context.WithCancel(t.Context())
			read := make(chan struct{})
			go func() {
				defer close(read)
				for ctx.Err() == nil {
					_, _ = g.Get(ctx, "key")
					_ = g.Refresh(ctx, "another") // and numbers rise
					time.Sleep(time.Millisecond)
				}
			}()
			time.Sleep(10 * time.Millisecond)
			if err := g.Set(t.Context(), "key", "Set"); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if v, err := g.Get(t.Context(), "key"); v != "Set" || err != nil {
					t.Errorf("loads of %v: %q, %v", took, v, err)
				}
				time.Sleep(2 * took) // what was under way has ended
			}
			stop()
			<-read
		})
	}
}
