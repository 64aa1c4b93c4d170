package onefill_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

func TestR40ClockPoison(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	g := newGroup(t, m, "users", (&countingSource{}).load)
	_, _ = g.Get(t.Context(), "k")
	m.Merge(math.MaxUint64)
	for _, v := range []string{"a", "b"} {
		err := g.Set(t.Context(), "k", v)
		got, _ := g.Get(t.Context(), "k")
		if got != v {
			t.Errorf("Set(%q) %v then Get %q", v, err, got)
		}
	}
	err := g.Delete(t.Context(), "k")
	got, _ := g.Get(t.Context(), "k")
	t.Log("after delete", err, got)
}

func TestR41BatchCancelAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		ended := make(chan error, 1)
		g := newGroup(t, m, "users", (&countingSource{}).load, onefill.CancelAbandoned(), onefill.LoadBatch(func(ctx context.Context, keys []string) (map[string]string, error) {
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute):
			}
			ended <- ctx.Err()
			return nil, ctx.Err()
		}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = g.GetMulti(ctx, []string{"a", "b"})
		if err := <-ended; err == nil {
			t.Error("the batch was not cancelled")
		}
	})
}

var errCodec = errors.New("codec says no")

type noCodec struct{}

func (noCodec) Encode(v int) ([]byte, error) { return nil, errCodec }
func (noCodec) Decode([]byte) (int, error)   { return 0, nil }

func TestR42SetErrors(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	g := newGroup(t, m, "a", func(context.Context, string) (int, error) { return 0, nil }, onefill.WithCodec[int](noCodec{}))
	if err := g.Set(t.Context(), "k", 1); !errors.Is(err, errCodec) {
		t.Error(err)
	}
	n := 0
	h := newGroup(t, m, "b", func(context.Context, string) (string, error) { n++; return strings.Repeat("x", 10<<20), nil })
	for range 3 {
		_, _ = h.Get(t.Context(), "k")
	}
	if n != 1 {
		t.Errorf("%d loads of a 10 MiB value; TooLarge %d", n, h.Stats().TooLarge)
	}
	err := h.Set(t.Context(), "k", strings.Repeat("x", 17<<20))
	t.Log("set too large", err, h.Stats().TooLarge)
}

func TestR43NestedPlaceIgnoresContext(t *testing.T) {
	func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		var g *onefill.Group[string]
		var took time.Duration
		g = newGroup(t, m, "users", func(ctx context.Context, key string) (string, error) {
			switch key {
			case "outer":
				_, _ = g.Get(ctx, "inner") // gives its place to "long"
				return "", nil
			case "par":
				done := make(chan struct{})
				go func() { defer close(done); _, _ = g.Get(ctx, "inner") }()
				time.Sleep(400*time.Millisecond) // inner is done, back waits for a place
				c, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
				began := time.Now()
				_, _ = g.Get(c, "other")
				took = time.Since(began)
				<-done
				return "", nil
			case "long":
				time.Sleep(3 * time.Second)
			case "inner":
				time.Sleep(200*time.Millisecond)
			}
			return key, nil
		}, onefill.MaxLoads(1))
		go func() { _, _ = g.Get(context.Background(), "par") }()
		time.Sleep(100*time.Millisecond)
		go func() { _, _ = g.Get(context.Background(), "long") }()
		time.Sleep(4*time.Second)
		if took > time.Second {
			t.Errorf("a Get with a deadline of 100 ms returned after %v", took)
		}
	}(t)
}
