// Forgetting: what becomes of questions to a member that nobody waits for any more.

package peers

import (
	"context"

	"github.com/onefill/onefill/internal/wire"
)

// maxForgets bounds the forgets that wait to be sent; what a peer is not told of it works on for nothing.
const maxForgets = maxAsks / 2

// forget answers those of the questions that are still under way with err, and tells the peer that nobody waits for them.
func (l *link) forget(questions []question, err error) {
	var gone []*question
	l.mu.Lock()
	for i := range questions {
		if q := &questions[i]; l.open[q.id] == q {
			delete(l.open, q.id)
			if len(l.forgets) < maxForgets {
				l.forgets = append(l.forgets, q.id)
			}
			gone = append(gone, q)
		}
	}
	kept := l.queue[:0:0]
	for _, q := range l.queue {
		if contains(questions, q) {
			gone = append(gone, q)
		} else {
			kept = append(kept, q)
		}
	}
	l.queue = kept
	tell := len(l.forgets) > 0 && l.talks()
	l.mu.Unlock()
	for _, q := range gone {
		q.answer(nil, err)
	}
	if tell {
		l.pool.tasks.Go(func(context.Context) { l.sendForgets() })
	}
}

func contains(all []question, q *question) bool {
	for i := range all {
		if &all[i] == q {
			return true
		}
	}
	return false
}

// sendForgets sends the forgets that no batch has taken along.
func (l *link) sendForgets() {
	l.mu.Lock()
	forgets, ctx := l.forgets, l.ctx
	l.forgets = nil
	l.mu.Unlock()
	if len(forgets) == 0 {
		return
	}
	body := newBody(l.hello())
	for _, id := range forgets {
		body.b = wire.AppendForget(body.b, id)
	}
	if err := l.exchange(ctx, body, l.take); err != nil {
		l.trouble(err)
	}
}
