// The processes of the mesh as the story sees them: started, asked, killed, stopped.

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/onefill/onefill/internal/measure"
)

// mesh is the processes that live.
type mesh struct{ members []*member }

// member is one of them.
type member struct {
	*measure.Process
	url string // its ID, too
}

// startMesh starts the processes and lets them join each other.
func startMesh(ctx context.Context, s settings) (_ *mesh, err error) {
	m := new(mesh)
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	for range s.processes {
		p, err := measure.Start(ctx, processRole)
		if err != nil {
			return nil, err
		}
		m.members = append(m.members, &member{Process: p})
	}
	answers, err := m.all(func(int) order { return order{Do: "listen", Load: s.load, LoadLog: s.loadLog} })
	if err != nil {
		return nil, err
	}
	urls := make([]string, len(answers))
	for i, a := range answers {
		urls[i], m.members[i].url = a.URL, a.URL
	}
	_, err = m.all(func(int) order { return order{Do: "join", URLs: urls} })
	return m, err
}

// all gives each member an order, all at once, and returns their answers.
func (m *mesh) all(orderOf func(i int) order) ([]answer, error) {
	answers, errs := make([]answer, len(m.members)), make([]error, len(m.members))
	var calls sync.WaitGroup
	for i, p := range m.members {
		calls.Go(func() { answers[i], errs[i] = measure.Call[order, answer](p.Process, orderOf(i)) })
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// owner returns the ID of the process that owns key, on which all must agree.
func (m *mesh) owner(key string) (string, error) {
	answers, err := m.all(func(int) order { return order{Do: "owner", Key: key} })
	if err != nil {
		return "", err
	}
	for _, a := range answers {
		if a.Owner != answers[0].Owner {
			return "", fmt.Errorf("%s and %s both own %q: the processes do not agree", a.Owner, answers[0].Owner, key)
		}
	}
	return answers[0].Owner, nil
}

// burst lets callers, spread over the members, ask for key at the same moment, and returns what they got.
func (m *mesh) burst(key string, callers int) (b burst, err error) {
	before, err := m.loads()
	if err != nil {
		return b, err
	}
	n := len(m.members)
	answers, err := m.all(func(i int) order {
		return order{Do: "get", Key: key, Callers: callers*(i+1)/n - callers*i/n}
	})
	if err != nil {
		return b, err
	}
	for _, a := range answers {
		b.add(a.Burst)
	}
	after, err := m.loads()
	for i, loads := range after {
		for range loads - before[i] {
			b.loadedBy = append(b.loadedBy, m.members[i].url)
		}
	}
	return b, err
}

// loads returns how often the loader ran in each member. Each counts its own.
func (m *mesh) loads() ([]int, error) {
	answers, err := m.all(func(int) order { return order{Do: "loads"} })
	if err != nil {
		return nil, err
	}
	loads := make([]int, len(answers))
	for i, a := range answers {
		loads[i] = a.Loads
	}
	return loads, nil
}

// kill kills the member with that ID.
func (m *mesh) kill(id string) error {
	i := slices.IndexFunc(m.members, func(p *member) bool { return p.url == id })
	if i < 0 {
		return fmt.Errorf("%q is no process of the mesh", id)
	}
	m.members[i].Kill()
	m.members = slices.Delete(m.members, i, i+1)
	return nil
}

// stop lets the members that live leave, one after the other, as in a rolling restart: of two that leave at once, neither can be sure to have told the other.
func (m *mesh) stop() {
	for _, p := range m.members {
		_ = p.Stop() // nobody needs it any more, so how it ends does not matter
	}
}

func (m *mesh) pids() []int {
	pids := make([]int, len(m.members))
	for i, p := range m.members {
		pids[i] = p.PID()
	}
	return pids
}
