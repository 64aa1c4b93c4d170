package flight

import (
	"context"
	"testing"
)

func TestG19(t *testing.T) {
	var g Group[int]
	f, _ := g.Join("f")
	q, _ := g.Join("q")
	var last []uint64
	f.Watch(func(ids []uint64) { last = ids })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	g.Join("q")
	_, _ = g.Wait(ctx, q, &f.Node)
	if len(last) > 1 {
		t.Errorf("f waits for nothing any more, its watchers were last told %d IDs", len(last))
	}
	// and now a false cycle: at another process h follows f
	var other Group[int]
	h, _ := other.Join("h") // asks for f
	h.SetRemote(last)
	q2 := &q.Node
	if h.wait(q2) == nil {
		t.Error("q may not wait for h: a cycle that is none")
	}
}
