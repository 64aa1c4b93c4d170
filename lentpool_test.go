// A Peers without a network: all keys belong to one other mesh, which is asked directly. For what a test wants to see of one side alone.

package onefill_test

import (
	"context"
	"sync"

	"github.com/onefill/onefill"
)

type lentPool struct{ owner onefill.Member }

func (p *lentPool) Join(onefill.Member) error                                       { return nil }
func (p *lentPool) Self() string                                                    { return "asker" }
func (p *lentPool) Listed() bool                                                    { return true }
func (p *lentPool) Route(string, string) onefill.Route                              { return onefill.Route{p} }
func (p *lentPool) Spread(context.Context, *onefill.Invalidation) (a []onefill.Ack) { return a }
func (p *lentPool) Ready(context.Context) error                                     { return nil }
func (p *lentPool) Leave(context.Context) error                                     { return nil }
func (p *lentPool) Close(context.Context) error                                     { return nil }
func (p *lentPool) States() []onefill.PeerState                                     { return nil }
func (p *lentPool) ID() string                                                      { return "owner" }

func (p *lentPool) Fetch(_ context.Context, asks []*onefill.Ask, reply func(int, *onefill.Answer, error)) {
	var left sync.WaitGroup
	left.Add(len(asks))
	p.owner.Serve("asker", asks, func(i int, a *onefill.Answer) { reply(i, a, nil); left.Done() }, func(int, []uint64) {})
	left.Wait()
}
