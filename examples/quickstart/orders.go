// What the story tells a process to do, and what the process answers.

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/onefill/onefill/internal/measure"
)

// order is one thing to do.
type order struct {
	Do      string        `json:"do"` // listen, join, owner, get or loads
	Load    time.Duration `json:"load,omitempty"`
	LoadLog string        `json:"loadlog,omitempty"`
	URLs    []string      `json:"urls,omitempty"`
	Key     string        `json:"key,omitempty"`
	Callers int           `json:"callers,omitempty"`
}

// answer is what came of it.
type answer struct {
	URL   string `json:"url,omitempty"`   // listen: where the process listens
	Owner string `json:"owner,omitempty"` // owner: the ID of the process that owns the key
	Loads int    `json:"loads,omitempty"` // loads: how often the loader ran in the process
	Burst burst  `json:"burst"`           // get
}

// burst is what callers who asked for one key got.
type burst struct {
	Waits  []time.Duration `json:"waits"`
	Values map[string]int  `json:"values"` // how many callers got each
	Errors []string        `json:"errors"`

	loadedBy []string // the process that ran the loader, once for each run
}

// add adds what callers in another process got.
func (b *burst) add(other burst) {
	b.Waits = append(b.Waits, other.Waits...)
	b.Errors = append(b.Errors, other.Errors...)
	if b.Values == nil {
		b.Values = make(map[string]int)
	}
	for value, callers := range other.Values {
		b.Values[value] += callers
	}
}

// live is the life of a process: it does what the story says until that ends. It returns the exit code.
func live() int {
	p := new(process)
	err := measure.Serve(func(o order) (answer, error) { return p.do(context.Background(), o) })
	if err = errors.Join(err, p.close()); err != nil {
		slog.Error("a process ended badly", "pid", os.Getpid(), "error", err)
		return 1
	}
	return 0
}

// do carries out one order.
func (p *process) do(ctx context.Context, o order) (a answer, err error) {
	switch o.Do {
	case "listen":
		p.takes = o.Load
		if p.log, err = measure.OpenLoadLog(o.LoadLog); err != nil {
			return a, err
		}
		if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return a, err
		}
		p.url = "http://" + p.listener.Addr().String()
		a.URL = p.url
	case "join":
		err = p.join(ctx, o.URLs)
	case "owner":
		a.Owner = p.pool.Owner(group, o.Key)
	case "get":
		a.Burst = p.get(ctx, o.Key, o.Callers)
	case "loads":
		a.Loads = int(p.loads.Load())
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	return a, err
}
