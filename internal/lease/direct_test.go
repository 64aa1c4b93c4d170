package lease_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill/internal/lease"
	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/internal/tasks"
)

// deafServer returns the address of a server that accepts and never answers.
func deafServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return l.Addr().String()
}

// Contract: L8
func TestDirectCallEndsAtItsBoundWhateverTheClientsOptions(t *testing.T) {
	addr := deafServer(t)
	clients := map[string]redis.UniversalClient{
		"plain":           redis.NewClient(&redis.Options{Addr: addr}),
		"heeding":         redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true}),
		"heeding cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{addr}, ContextTimeoutEnabled: true}),
	}
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			set := tasks.New()
			runner := lease.NewRunner(client, set, 100*time.Millisecond)
			late := make(chan error, 1)
			began := time.Now()
			_, err := runner.Direct(context.Background(), time.Hour, redis.NewScript("return 1"), []string{"k"}, nil, func(_ any, err error) { late <- err })
			if took := time.Since(began); !errors.Is(err, lease.ErrNoAnswer) || took > time.Second {
				t.Fatalf("%v after %v", err, took)
			}
			if err := <-late; err == nil {
				t.Fatal("late is told of a success")
			}
			_ = client.Close()
			if err := set.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestDirectLeavesTheClientItIsGivenAsItIs(t *testing.T) {
	client := redistest.Start(t).Client()
	set := tasks.New()
	runner := lease.NewRunner(client, set, time.Minute)
	reply, err := runner.Direct(context.Background(), time.Minute, redis.NewScript("return ARGV[1]"), []string{"k"}, []any{"x"}, nil)
	if reply != "x" || err != nil {
		t.Fatal(reply, err)
	}
	if o := client.Options(); o.ContextTimeoutEnabled || o.ReadTimeout == time.Minute {
		t.Fatalf("the client's options have changed: %+v", o)
	}
	if err := set.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}
