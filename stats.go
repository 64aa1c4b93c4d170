// What is counted, and how it is read.

package onefill

import (
	"sync/atomic"

	"github.com/onefill/onefill/internal/counter"
)

// groupStats counts what happens to a group. Hits are the only count that must cost nothing.
type groupStats struct {
	hits counter.Counter

	joins, loads, loadErrors, panics, notFound        atomic.Uint64
	tierHits, tierErrors, tierRefused                 atomic.Uint64
	stale, refreshes, refreshErrors, refreshesSkipped atomic.Uint64
	refreshing                                        atomic.Int64 // under way in the background
	fetches, served, busy                             atomic.Uint64
	tooLarge, encodeErrors, decodeErrors              atomic.Uint64
	invalidations, unreached                          atomic.Uint64

	closed atomic.Bool
}

// Stats says what has happened to a group in this process since it was made.
type Stats struct {
	Hits       uint64 // reads that this process's memory answered, and reads that joined a flight and got its value
	Misses     uint64 // loads that ran in this process
	Joins      uint64 // reads that joined a flight and got its value; part of Hits
	Loads      uint64 // the same as Misses
	LoadErrors uint64 // loads that failed; "not found" is no failure
	Panics     uint64 // loads that panicked or called runtime.Goexit; part of LoadErrors
	NotFound   uint64 // loads that found nothing

	Stale            uint64 // reads that got a stale value
	Refreshes        uint64 // refreshes in the background that brought a value
	RefreshErrors    uint64 // those that failed
	RefreshesSkipped uint64 // those that were due and not begun because MaxRefreshes were under way

	Fetches uint64 // values that came from other processes
	Served  uint64 // answers that were given to other processes
	Busy    uint64 // times that another process had no room

	TierHits    uint64 // values that came from the tier
	TierErrors  uint64 // fills that had to do without the tier because it did not answer, or could not be told what was loaded
	TierRefused uint64 // values that the tier did not take because the claim was lost or the key invalidated meanwhile

	TooLarge     uint64 // values that were not kept because they are larger than MaxValueBytes
	EncodeErrors uint64 // values that the codec could not encode
	DecodeErrors uint64 // values of other processes that the codec could not decode

	Invalidations uint64 // calls of Delete and Set in this process
	Unreached     uint64 // processes that such calls could not reach

	Bytes, Entries              int64  // in memory now; bytes with their overhead
	EvictedLive, EvictedExpired uint64 // entries that had to leave for others, before and after the end of their life
}

// Stats returns the group's counts. Counts that change meanwhile may not add up exactly.
func (g *core) Stats() Stats {
	s := &g.stats
	joins := s.joins.Load()
	loads := s.loads.Load()
	return Stats{
		Hits: s.hits.Load() + joins, Misses: loads, Joins: joins, Loads: loads,
		LoadErrors: s.loadErrors.Load(), Panics: s.panics.Load(), NotFound: s.notFound.Load(),
		Stale: s.stale.Load(), Refreshes: s.refreshes.Load(), RefreshErrors: s.refreshErrors.Load(), RefreshesSkipped: s.refreshesSkipped.Load(),
		Fetches: s.fetches.Load(), Served: s.served.Load(), Busy: s.busy.Load(),
		TierHits: s.tierHits.Load(), TierErrors: s.tierErrors.Load(), TierRefused: s.tierRefused.Load(),
		TooLarge: s.tooLarge.Load(), EncodeErrors: s.encodeErrors.Load(), DecodeErrors: s.decodeErrors.Load(),
		Invalidations: s.invalidations.Load(), Unreached: s.unreached.Load(),
		Bytes: g.account.Bytes(), Entries: g.account.Entries(),
		EvictedLive: g.account.EvictedLive(), EvictedExpired: g.account.EvictedExpired(),
	}
}

// MeshStats says how a process's mesh is.
type MeshStats struct {
	Groups   map[string]Stats
	Members  []PeerState       // of the pool, this process included; none where there is no pool
	Failures map[string]uint64 // background failures of each kind, as they are logged
	Bytes    int64             // memory of all groups together
	MaxBytes int64
}

// Stats returns the counts of all groups and the state of the pool.
func (m *Mesh) Stats() MeshStats {
	s := MeshStats{Groups: make(map[string]Stats), Failures: m.log.Totals(), Bytes: m.cache.Bytes(), MaxBytes: m.cache.MaxBytes()}
	for name, g := range *m.groups.Load() {
		s.Groups[name] = g.Stats()
		if g.cache != m.cache {
			s.Bytes += g.cache.Bytes()
			s.MaxBytes += g.cache.MaxBytes()
		}
	}
	if m.peers != nil {
		s.Members = m.peers.States()
	}
	return s
}
