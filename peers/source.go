// Sources live here: what one is, what a pool tells the ones of this package, and how a set that one reports becomes members. Each source has a file of
// its own (static.go, dns.go) or a package (kube, consul and others).

package peers

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Source says who is out there. A pool watches one source for as long as it lives.
type Source interface {
	// Watch calls set with the full set of members, once as soon as it is known and again after each change, until ctx ends; then it returns ctx's error.
	// An empty set says that there are no members, while no call says that they are not known yet. Calls of set are made one at a time, set returns
	// quickly, and the slice is set's to keep. A failure that may pass does not end Watch and does not call set: members stay until the source
	// knows better. Any other error ends it, and the pool reports that error and calls Watch again after a pause.
	Watch(ctx context.Context, set func([]Peer)) error
}

// Peer is one process as a Source names it.
type Peer struct {
	// ID ranks the member: all processes of a pool must know it by the same one. Where a source knows only addresses it is empty, and the normalised URL
	// takes its place. A member that keeps its ID keeps its keys when its URL changes.
	ID string
	// URL is where the member listens, such as "https://10.0.0.3:7946": scheme http or https, host and port, nothing else. "//10.0.0.3:7946" takes the
	// scheme that the pool speaks.
	URL string
	// Incarnation tells processes apart that followed each other under one ID, higher is later. Zero where the source does not know: the member itself
	// says it then.
	Incarnation uint64
}

// surroundings is what a pool tells the sources of this package about itself before it watches them.
type surroundings struct {
	self   string      // this process's normalised URL; empty for a guest that has none
	scheme string      // "http" or "https": what the pool speaks
	guest  bool        // this process owns nothing and need not be listed
	report func(error) // takes failures that pass, from any goroutine; nil drops them
}

// binder is a source that wants to know its surroundings, or that can be wrong before it is watched. The source that bind returns is watched in its place.
type binder interface {
	bind(surroundings) (Source, error)
}

// fixedSource is a source whose members never change, hence known before it is watched.
type fixedSource interface {
	fixed() []Peer
}

// addressSource is a source that knows members by their address alone: this process's ID must be its normalised URL too, whatever Config.ID says.
type addressSource interface {
	addressesOnly()
}

// prepare makes src ready to be watched by a pool in these surroundings. Its error names what is wrong with the source: a malformed name or URL, or a
// fixed list that lacks this process.
func prepare(src Source, here surroundings) (Source, error) {
	if src == nil {
		return nil, errors.New("peers: the source is nil: name the members with Static or DNS, say")
	}
	if here.report == nil {
		here.report = func(error) {}
	}
	if b, ok := src.(binder); ok {
		return b.bind(here)
	}
	return src, nil
}

// members turns a set as a source reported it into the members of a pool that speaks scheme: URLs normalised, IDs filled in, each ID once. Of two entries
// with one ID the later incarnation counts, else the first. What cannot be used is left out and named by the error, which does not make the rest invalid.
func members(scheme string, set []Peer) ([]Peer, error) {
	found := make([]Peer, 0, len(set))
	at := make(map[string]int, len(set))
	var problems []error
	for _, p := range set {
		p, err := complete(scheme, p)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		i, twice := at[p.ID]
		if !twice {
			at[p.ID] = len(found)
			found = append(found, p)
			continue
		}
		if found[i].URL != p.URL && found[i].Incarnation == p.Incarnation {
			problems = append(problems, fmt.Errorf("peers: member %q is listed at %q and at %q", p.ID, found[i].URL, p.URL))
		}
		if p.Incarnation > found[i].Incarnation {
			found[i] = p
		}
	}
	return found, errors.Join(problems...)
}

// complete fills in what a source may leave out of a Peer.
func complete(scheme string, p Peer) (Peer, error) {
	if strings.HasPrefix(p.URL, "//") {
		p.URL = scheme + ":" + p.URL
	}
	url, err := normaliseURL(p.URL)
	if err != nil {
		return Peer{}, fmt.Errorf("peers: a member's %w", err)
	}
	if !strings.HasPrefix(url, scheme+"://") { // a pool with secrets must not speak plainly to one member
		return Peer{}, fmt.Errorf("peers: member %q is not %s, which this pool speaks", url, scheme)
	}
	p.URL = url
	if p.ID == "" {
		p.ID = url
	}
	return p, nil
}
