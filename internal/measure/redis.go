// The Redis that a command measures with: the user's, one of the command's own, or an embedded one.

package measure

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

const (
	startPatience  = 10 * time.Second // for a server of one's own to answer
	answerPatience = 3 * time.Second  // for the user's
)

// Redis is a server that a command uses.
type Redis struct {
	URL string // as redis.ParseURL takes it
	// Embedded says that it is a miniredis in this process: good enough to show what happens, not to measure how long it takes.
	Embedded bool
	close    func()
}

// OpenRedis returns the server at url, or a *UsageError where none answers there. Without a url it starts redis-server on a free port of the loopback, with
// nothing kept on disk; where that is not on PATH it takes an embedded miniredis and says so on stderr. Close must be called.
func OpenRedis(ctx context.Context, url string, stderr io.Writer) (*Redis, error) {
	if url != "" {
		ctx, cancel := context.WithTimeout(ctx, answerPatience)
		defer cancel()
		if err := ping(ctx, url); err != nil {
			return nil, Usagef("-redis %s: %v", url, err)
		}
		return &Redis{URL: url, close: func() {}}, nil
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		fmt.Fprintln(stderr, "there is no redis-server on PATH: an embedded miniredis takes its place, which is slower")
		return embedded()
	}
	const attempts = 10 // another program may take a port that was free
	for range attempts {
		var r *Redis
		if r, err = startRedis(ctx, program); err == nil || ctx.Err() != nil {
			return r, err
		}
	}
	return nil, err
}

// Close ends a server that OpenRedis has started.
func (r *Redis) Close() { r.close() }

func embedded() (*Redis, error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("measure: embedded Redis: %w", err)
	}
	return &Redis{URL: "redis://" + server.Addr(), Embedded: true, close: server.Close}, nil
}

// startRedis starts a server and waits until it answers.
func startRedis(ctx context.Context, program string) (*Redis, error) {
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("measure: redis-server: %w", err)
	}
	dir, err := os.MkdirTemp("", "redis")
	if err != nil {
		return nil, fmt.Errorf("measure: redis-server: %w", err)
	}
	cmd := exec.CommandContext(ctx, program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir)
	cmd.SysProcAttr = dieWithParent()
	if err := cmd.Start(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("measure: redis-server: %w", err)
	}
	alive, died := context.WithTimeout(ctx, startPatience)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		defer died()
		_ = cmd.Wait() // "signal: killed"
	})
	r := &Redis{URL: "redis://127.0.0.1:" + port, close: func() {
		_ = cmd.Process.Kill() // fails only where it is gone already
		waiting.Wait()
		_ = os.RemoveAll(dir)
	}}
	if err := listens(alive, "127.0.0.1:"+port); err != nil {
		r.Close()
		return nil, fmt.Errorf("measure: redis-server does not start: %w", err)
	}
	if err := ping(alive, r.URL); err != nil {
		r.Close()
		return nil, fmt.Errorf("measure: redis-server does not answer: %w", err)
	}
	return r, nil
}

// freePort returns a port of the loopback that is free now.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	return port, err
}

// listens waits until someone listens at addr.
func listens(ctx context.Context, addr string) error {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// ping asks the server at url for a sign of life.
func ping(ctx context.Context, url string) error {
	options, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	options.DialerRetries, options.MaxRetries = 1, -1 // with the defaults a dial is tried five times, 100 ms apart
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	return client.Ping(ctx).Err()
}
