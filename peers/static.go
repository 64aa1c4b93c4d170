// The fixed list of members lives here.

package peers

import (
	"context"
	"fmt"
)

// Static is a source of members that never change, by their URLs, such as "http://10.0.0.3:7946". Their order and repetitions do not matter. The list must
// name every process, this one too unless it is a guest: NewPool refuses a malformed URL, one whose scheme is not the pool's, and a list that lacks this
// process. The ID of each member is its URL.
func Static(urls ...string) Source {
	s := &staticSource{}
	for _, u := range urls {
		s.peers = append(s.peers, Peer{URL: u})
	}
	return s
}

type staticSource struct{ peers []Peer }

func (s *staticSource) addressesOnly() {}

func (s *staticSource) fixed() []Peer { return s.peers }

// Contract P6: a fixed list without this process is an error at the start, for nobody would ever ask it.
func (s *staticSource) bind(here surroundings) (Source, error) {
	if len(s.peers) == 0 {
		return nil, fmt.Errorf("peers: Static has no URLs")
	}
	peers, err := members(here.scheme, s.peers)
	if err != nil {
		return nil, fmt.Errorf("peers: Static: %w", err)
	}
	if !here.guest {
		if err := listed(here.self, peers); err != nil {
			return nil, err
		}
	}
	return &staticSource{peers: peers}, nil
}

func (s *staticSource) Watch(ctx context.Context, set func([]Peer)) error {
	set(append([]Peer(nil), s.peers...))
	<-ctx.Done()
	return ctx.Err()
}
