// What the pool believes at a moment, and what follows from it: who owns a key, and whom to ask. The ranking itself is in ranking.go.

package peers

import (
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/onefill/onefill"
)

// view is what the pool believes at a moment; it does not change.
type view struct {
	ranking *ranking         // of the processes that own keys
	links   map[string]*link // of the members that are not this process
	ranked  []*link          // by their place in ranking; nil for this process
	hash    uint64           // of the members' IDs, whatever their state
	listed  bool             // the others know this process as one of them
}

// changed makes the new belief about a member effective.
func (p *Pool) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rebuild()
}

// owns reports whether this process owns keys. The caller holds mu. Where the list of members is empty it starts alone.
func (p *Pool) owns() bool {
	return !p.cfg.Guest && !p.leaving && (p.listed || len(p.links) == 0)
}

// rebuild makes a new view. The caller holds mu.
func (p *Pool) rebuild() {
	var owners, all []string
	for id, l := range p.links {
		all = append(all, id)
		if l.alive() {
			owners = append(owners, id)
		}
	}
	if p.owns() {
		owners = append(owners, p.self)
	}
	if p.listed {
		all = append(all, p.self)
	}
	v := &view{ranking: newRanking(owners), links: p.links, listed: p.owns()}
	for _, id := range v.ranking.ids {
		v.ranked = append(v.ranked, p.links[id])
	}
	slices.Sort(all)
	digest := xxhash.New()
	for _, id := range all {
		_, _ = digest.WriteString(id + "\x00") // never fails
	}
	v.hash = digest.Sum64()
	p.view.Store(v)
}

// Listed implements onefill.Peers. A process that knows nobody else counts as listed: there is nobody who could fail to tell it something. One that has said it
// leaves is told nothing either.
func (p *Pool) Listed() bool { return p.view.Load().listed }

// Route implements onefill.Peers.
func (p *Pool) Route(group, key string) (route onefill.Route) {
	v := p.view.Load()
	first, second := v.ranking.top2(keyHash(group, key))
	if first < 0 || v.ranked[first] == nil {
		return route
	}
	route[0] = v.ranked[first]
	if second >= 0 && v.ranked[second] != nil {
		route[1] = v.ranked[second]
	}
	return route
}

// Owner returns the ID of the process that owns the key, as this process sees it now; "" where there is none.
func (p *Pool) Owner(group, key string) string {
	v := p.view.Load()
	first, _ := v.ranking.top2(keyHash(group, key))
	if first < 0 {
		return ""
	}
	return v.ranking.ids[first]
}
