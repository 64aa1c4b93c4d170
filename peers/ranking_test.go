// Tests of owners: that all processes agree, that shares are even, that little moves.

package peers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

func memberIDs(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("http://10.0.%d.%d:7946", i/250, i%250+1)
	}
	return ids
}

// Contract: P1
func TestOrderAndRepetitionOfMembersDoNotChangeTheOwners(t *testing.T) {
	a, b := newRanking([]string{"A", "B", "C"}), newRanking([]string{"C", "A", "B", "A"})
	if !slices.Equal(a.ids, b.ids) {
		t.Fatalf("members are %q and %q", a.ids, b.ids)
	}
	for i := range 10_000 {
		h := keyHash("users", "user:"+strconv.Itoa(i))
		a1, a2 := a.top2(h)
		b1, b2 := b.top2(h)
		if a1 != b1 || a2 != b2 {
			t.Fatalf("user:%d is owned by %d, %d and by %d, %d", i, a1, a2, b1, b2)
		}
	}
}

// Contract: P1, P13
func TestOwnersStayTheSameBetweenReleases(t *testing.T) {
	r := newRanking(memberIDs(10))
	for _, c := range []struct {
		group, key    string
		hash          uint64
		first, second int
	}{
		{"users", "42", 0xb9ba6332dd9b75c2, 2, 6},
		{"", "", 0x34c96acdcadb1bbb, 5, 3},
		{"users", "\xff\x00", 0x7348214ca4f59c03, 1, 5},
		{"users", string(make([]byte, 4096)), 0x1f3c1af22ccd348a, 6, 3},
	} {
		h := keyHash(c.group, c.key)
		first, second := r.top2(h)
		if h != c.hash || first != c.first || second != c.second {
			t.Errorf("{%q, %.8q, %#x, %d, %d} became %#x, %d, %d: pools of two releases would disagree", c.group, c.key, c.hash, c.first, c.second, h, first, second)
		}
	}
}

// Contract: P2
func TestMillionSequentialKeysSpreadEvenlyOverHundredMembers(t *testing.T) {
	const members, keys = 100, 1_000_000
	r := newRanking(memberIDs(members))
	var owned, deputised [members]int
	for i := range keys {
		first, second := r.top2(keyHash("users", "user:"+strconv.Itoa(i)))
		owned[first]++
		deputised[second]++
	}
	for what, counts := range map[string][]int{"owner": owned[:], "deputy": deputised[:]} {
		if ratio := float64(slices.Max(counts)) * members / keys; ratio > 1.05 {
			t.Errorf("the fullest %s has %.3f times its fair share", what, ratio)
		}
	}
}

// A member that dies leaves its keys to all others alike, not to one neighbour.
func TestDeputiesOfOneOwnerAreSpreadOverAllOthers(t *testing.T) {
	const members = 20
	r := newRanking(memberIDs(members))
	var pairs [members][members]int
	for i := range 400 * members * members {
		first, second := r.top2(keyHash("users", strconv.Itoa(i)))
		pairs[first][second]++
	}
	for first := range pairs {
		for second, n := range pairs[first] {
			if first != second && (n < 300 || n > 545) { // 421 are fair; six standard deviations
				t.Errorf("member %d is deputy for %d keys of member %d", second, n, first)
			}
		}
	}
}

// Contract: P2
func TestEveryMemberOwnsItsShareOfSequentialKeys(t *testing.T) {
	for _, members := range []int{10, 50} {
		r := newRanking(memberIDs(members))
		owned := make([]int, members)
		for i := range 20_000 {
			first, _ := r.top2(keyHash("users", "user:"+strconv.Itoa(i+1)))
			owned[first]++
		}
		if fair := 20_000 / members; slices.Min(owned) < fair*3/4 || slices.Max(owned) > fair*5/4 {
			t.Errorf("%d members own between %d and %d keys, %d are fair", members, slices.Min(owned), slices.Max(owned), fair)
		}
	}
}

// Contract: P2
func TestLeavingMemberMovesOnlyItsOwnKeysToTheirDeputies(t *testing.T) {
	ids := memberIDs(30)
	gone := ids[17]
	before, after := newRanking(ids), newRanking(slices.Delete(slices.Clone(ids), 17, 18))
	moved := 0
	for i := range 30_000 {
		h := keyHash("users", strconv.Itoa(i))
		first, second := before.top2(h)
		want := before.ids[first]
		if want == gone {
			moved++
			want = before.ids[second]
		}
		if now, _ := after.top2(h); after.ids[now] != want {
			t.Fatalf("key %d moved from %s to %s", i, before.ids[first], after.ids[now])
		}
	}
	if moved < 800 || moved > 1200 {
		t.Errorf("%d keys of 30000 moved, 1000 are fair", moved)
	}
}

func TestTopTwoAreTheFirstOfTheFullOrder(t *testing.T) {
	for n := range 40 {
		r := newRanking(memberIDs(n))
		for range 200 {
			h := rand.Uint64()
			first, second := r.top2(h)
			order := append(orderOf(r, h), -1, -1)
			if first != order[0] || second != order[1] {
				t.Fatalf("of %d members %d and %d rank highest, the full order is %v", n, first, second, order)
			}
		}
	}
}

// orderOf returns the places in r.ids of all members, the owner first.
func orderOf(r *ranking, h uint64) (places []int) {
	var scores []uint64
	for i := range r.seeds {
		scores = append(scores, r.seeds[i].score(h, uint64(i)+1))
	}
	slices.Sort(scores)
	for _, score := range slices.Backward(scores) {
		places = append(places, placeOf(score))
	}
	return places
}
func TestGroupAndKeyDoNotRunIntoEachOther(t *testing.T) {
	if keyHash("ab", "c") == keyHash("a", "bc") {
		t.Error("(ab, c) and (a, bc) have one hash")
	}
}

func TestRankingAKeyDoesNotAllocate(t *testing.T) {
	r := newRanking(memberIDs(10))
	for _, key := range []string{"user:42", string(make([]byte, 4096))} {
		if n := testing.AllocsPerRun(100, func() { r.top2(keyHash("users", key)) }); n != 0 {
			t.Errorf("a key of %d bytes costs %v allocations", len(key), n)
		}
	}
}

func BenchmarkTop2(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			r := newRanking(memberIDs(n))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				r.top2(keyHash("users", benchmarkKeys[i%len(benchmarkKeys)]))
				i++
			}
		})
	}
}

func BenchmarkKeyHash(b *testing.B) {
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		keyHash("users", benchmarkKeys[i%len(benchmarkKeys)])
		i++
	}
}

var benchmarkKeys = func() []string {
	keys := make([]string, 1<<14)
	for i := range keys {
		keys[i] = "user:" + strconv.Itoa(i)
	}
	return keys
}()
