// Owners live here: which member ranks first for a key, and which next. Who the members are is told by sources and judged by health, not here.

package peers

import (
	"encoding/binary"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// ranking orders a fixed set of members for any key by rendezvous hashing (Thaler and Ravishankar 1998, "Using Name-Based Mappings to Increase Hit
// Rates"): each member scores the key, the highest score owns it, the next is its deputy. A member that comes or goes moves only its own keys. A
// ranking over fewer members, the living ones say, is a ranking of its own. It never changes once built, so that any number of goroutines may use it.
//
// Every process of a pool must score alike: the hashes, the seeds and the score below are part of what releases share, and a test pins their values.
type ranking struct {
	ids   []string // sorted, each once: the order in which members were learned says nothing
	seeds []seed   // seeds[i] belongs to ids[i]
}

// seed is a member's part of each score.
type seed struct{ xor, mul uint64 }

// newRanking builds the ranking of the members with these IDs, in any order; an ID listed twice counts once. A pool has at most placeMask members.
func newRanking(ids []string) *ranking {
	sorted := slices.Clone(ids)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	seeds := make([]seed, len(sorted))
	for i, id := range sorted {
		seeds[i] = newSeed(id)
	}
	return &ranking{ids: sorted, seeds: seeds}
}

// newSeed derives both halves from the ID. The multiplier is the hash of the first half, not of the ID, so that IDs which differ in one digit share no
// structure; it is odd, so that multiplying by it loses nothing.
func newSeed(id string) seed {
	xor := xxhash.Sum64String(id)
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], xor)
	return seed{xor: xor, mul: xxhash.Sum64(b[:]) | 1}
}

// placeMask covers the low bits of a score, which hold the member's place in ids, counted from one.
const placeMask = 1<<20 - 1

// score is how much the member at place (from one) wants the key with hash h. One multiplication is enough because h is a good hash already and only the
// high bits are compared; folding in the upper half of a 128-bit product spread keys no better and took a third longer. The place in the low bits makes
// scores differ, and lets top2 carry a member as one number.
func (s *seed) score(h, place uint64) uint64 { return (h^s.xor)*s.mul&^placeMask | place }

// top2 returns the places in ids of the owner and the deputy of the key with hash h, -1 where there is none.
//
// It takes four members at a time, because a branch for each costs more than the scores, and then keeps the two highest without a branch: which member
// wins is what no processor can predict. Up to 100 members mispredictions took most of the time of a plain loop.
func (r *ranking) top2(h uint64) (first, second int) {
	var best, next uint64
	rest, place := r.seeds, uint64(1)
	for ; len(rest) >= 4; rest, place = rest[4:], place+4 {
		four := (*[4]seed)(rest)
		a, b, c, d := four[0].score(h, place), four[1].score(h, place+1), four[2].score(h, place+2), four[3].score(h, place+3)
		if a <= next && b <= next && c <= next && d <= next {
			continue
		}
		best, next = keepTwo(best, next, a)
		best, next = keepTwo(best, next, b)
		best, next = keepTwo(best, next, c)
		best, next = keepTwo(best, next, d)
	}
	for i := range rest {
		best, next = keepTwo(best, next, rest[i].score(h, place+uint64(i)))
	}
	return placeOf(best), placeOf(next)
}

// keepTwo returns the two highest of the three; best is never below next.
func keepTwo(best, next, score uint64) (uint64, uint64) {
	return max(best, score), max(next, min(best, score))
}

// placeOf returns the place in ids, counted from zero, that a score carries; the zero that no member scores gives -1.
func placeOf(score uint64) int { return int(score&placeMask) - 1 }

// keyHash is the hash by which a key is ranked: xxhash64 of the group's length (8 bytes, little-endian), the group and the key. The length keeps
// ("ab", "c") and ("a", "bc") apart. It does not allocate.
func keyHash(group, key string) uint64 {
	var d xxhash.Digest
	d.Reset()
	var length [8]byte
	binary.LittleEndian.PutUint64(length[:], uint64(len(group)))
	d.Write(length[:])
	d.WriteString(group)
	d.WriteString(key)
	return d.Sum64()
}
