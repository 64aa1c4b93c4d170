package cache

// This file holds the comparison of a cache that has room for everything with a plain map.

import (
	"math/rand/v2"
	"testing"
)

func TestCacheWithRoomEqualsAMap(t *testing.T) { compareWithAMap(t, program(20_000)) }

func FuzzCacheAgainstAMap(f *testing.F) {
	f.Add(program(10))
	f.Add(program(100))
	f.Fuzz(compareWithAMap)
}

// program returns that many operations, three random bytes each.
func program(operations int) []byte {
	random := rand.New(rand.NewPCG(5, 6))
	program := make([]byte, 3*operations)
	for i := range program {
		program[i] = byte(random.Uint32())
	}
	return program
}

// compareWithAMap runs a program on both.
func compareWithAMap(t *testing.T, program []byte) {
	type name struct {
		group int
		key   string
	}
	c := New(4 * minShare)
	groups := []*Group{c.NewGroup(anyName(), nil), c.NewGroup(anyName(), nil)}
	stored := map[name]*Entry{}
	floors := map[uint64]uint64{} // by stripe
	for ; len(program) >= 3; program = program[3:] {
		n := name{int(program[0] >> 7), numbered("key", int(program[1]))}
		g := groups[n.group]
		hash := c.Hash(g, n.key)
		stripe := g.stripe(n.key)
		number := uint64(program[2])
		e, is := stored[n]
		switch program[0] & 0x7f % 6 {
		case 0, 1, 2:
			fresh := entry(g, n.key, number, int(number))
			want := (floors[stripe] == 0 || number > floors[stripe]) && (!is || number >= e.Number)
			if got := c.Store(hash, fresh, 0); got != want {
				t.Fatalf("Store(%v, %d) = %v", n, number, got)
			}
			if want {
				stored[n] = fresh
			}
		case 3:
			number /= 8
			var want uint64
			if is && e.Number > number {
				want = e.Number
			} else {
				delete(stored, n)
			}
			floors[stripe] = max(floors[stripe], number)
			if got := c.Invalidate(hash, g, n.key, number, nil); got != want {
				t.Fatalf("Invalidate(%v, %d) = %d, want %d", n, number, got, want)
			}
		case 4:
			if is && !c.Remove(e) {
				t.Fatalf("Remove(%v) found nothing", n)
			}
			delete(stored, n)
		case 5:
			if got := c.Get(hash, g, n.key); got != e {
				t.Fatalf("Get(%v) = %v, want %v", n, got, e)
			}
		}
	}
	if c.Len() != len(stored) {
		t.Errorf("%d entries, want %d", c.Len(), len(stored))
	}
	for n, e := range stored {
		if c.peek(groups[n.group], n.key) != e {
			t.Errorf("%v is not there", n)
		}
	}
	recount(t, c, groups...)
}
