// One process of the mesh: everything that a program needs of onefill is in join and in loadUser.

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/measure"
	"github.com/onefill/onefill/peers"
)

const (
	processRole = "process"
	group       = "users"
	cluster     = "a" // as the load log calls the only one

	// patience is how long a caller waits beyond the time that a load takes.
	patience = 30 * time.Second
	// goodbye is how long a process may take to leave the mesh.
	goodbye = 2 * time.Second
)

// process is a program that uses onefill.
type process struct {
	url      string
	listener net.Listener
	mesh     *onefill.Mesh
	pool     *peers.Pool
	users    *onefill.Group[string]
	serving  sync.WaitGroup

	takes time.Duration
	log   *measure.LoadLog
	loads atomic.Int64
}

// loadUser stands for the expensive query. Its value says which process made it.
func (p *process) loadUser(ctx context.Context, key string) (string, error) {
	p.loads.Add(1)
	if err := p.log.Begin(cluster, key, p.takes); err != nil {
		return "", err
	}
	select {
	case <-time.After(p.takes):
		return fmt.Sprintf("%s, loaded by process %d", key, os.Getpid()), nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// join makes this process a member of the mesh whose processes listen at urls.
func (p *process) join(ctx context.Context, urls []string) (err error) {
	logger := slog.Default().With("pid", os.Getpid())
	if p.pool, err = peers.NewPool(p.url, peers.Static(urls...), peers.Config{Logger: logger}); err != nil {
		return err
	}
	if p.mesh, err = onefill.New(onefill.Config{Namespace: "quickstart", Peers: p.pool, Logger: logger}); err != nil {
		return err
	}
	if p.users, err = onefill.NewGroup(p.mesh, group, p.loadUser, onefill.LoadTimeout(p.takes+time.Minute)); err != nil {
		return err
	}
	p.serving.Go(func() { _ = p.pool.Serve(p.listener) }) // until Close
	return p.mesh.Ready(ctx)
}

// close leaves the mesh. That the killed process cannot be told is no reason to fail.
func (p *process) close() error {
	if p.mesh == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), goodbye)
	defer cancel()
	_ = p.mesh.Close(ctx)
	p.serving.Wait()
	return p.log.Close()
}

// get lets callers ask for key at the same moment.
func (p *process) get(ctx context.Context, key string, callers int) burst {
	ctx, cancel := context.WithTimeout(ctx, p.takes+patience)
	defer cancel()
	waits, values, errs := make([]time.Duration, callers), make([]string, callers), make([]error, callers)
	start := make(chan struct{})
	var asking sync.WaitGroup
	for i := range callers {
		asking.Go(func() {
			<-start
			began := time.Now()
			values[i], errs[i] = p.users.Get(ctx, key)
			waits[i] = time.Since(began)
		})
	}
	close(start)
	asking.Wait()
	b := burst{Waits: waits, Values: make(map[string]int)}
	for i := range callers {
		if errs[i] != nil {
			b.Errors = append(b.Errors, errs[i].Error())
			continue
		}
		b.Values[values[i]]++
	}
	return b
}
