package bench

// onefill as a contender. Its groups hold []byte, which a hit hands out as it lies in the cache.

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// openOnefill opens a mesh of one process with one group. A hit finds the entry and sees whether its life is over.
func openOnefill(entries, entryBytes int, load load) (read, func(), error) {
	const room = 1024 // bytes an entry besides key and value: far more than it takes, so that nothing is evicted where keys spread unevenly over shards
	mesh, group, err := onefillGroup(nil, int64(entries)*int64(entryBytes+room), load)
	if err != nil {
		return nil, nil, err
	}
	return onefillRead(group), func() { mesh.Close(context.Background()) }, nil
}

// onefillGroup makes a mesh with one group, whose values live longer than any benchmark and which keeps no hot copies.
func onefillGroup(pool onefill.Peers, maxBytes int64, load load) (*onefill.Mesh, *onefill.Group[[]byte], error) {
	mesh, err := onefill.New(onefill.Config{Namespace: "bench", Peers: pool, MaxBytes: maxBytes})
	if err != nil {
		return nil, nil, err
	}
	group, err := onefill.NewGroup(mesh, onefillServed, func(_ context.Context, key string) ([]byte, error) { return load(key) },
		onefill.TTL(time.Hour), onefill.HotTTL(-1))
	return mesh, group, err
}

func onefillRead(group *onefill.Group[[]byte]) read {
	return func(key string) (int, error) {
		value, err := group.Get(context.Background(), key)
		return len(value), err
	}
}

const (
	onefillServed   = "served"
	onefillCapacity = 64 << 20
)

// onefillTransport is how a pool's members speak to each other.
type onefillTransport struct {
	scheme string
	config peers.Config
}

var (
	onefillPlain  = onefillTransport{"http", peers.Config{Insecure: true}}
	onefillSecret = onefillTransport{"https", peers.Config{Secrets: []string{"a secret that both processes know"}}}
)

// join makes this process, which listens, one of the two members of a pool.
func (t onefillTransport) join(listener net.Listener, other string, load load) (*peers.Pool, *onefill.Mesh, *onefill.Group[[]byte], error) {
	self := t.url(listener)
	pool, err := peers.NewPool(self, peers.Static(self, other), t.config)
	if err != nil {
		return nil, nil, nil, err
	}
	mesh, group, err := onefillGroup(pool, onefillCapacity, load)
	if err != nil {
		return nil, nil, nil, err
	}
	go pool.Serve(listener)
	return pool, mesh, group, mesh.Ready(context.Background())
}

func (t onefillTransport) url(listener net.Listener) string {
	return t.scheme + "://" + listener.Addr().String()
}

// serveOnefill and serveOnefillSecret are roles: the process that owns the keys. Their argument is the URL of the one that asks.
func serveOnefill(out io.Writer, args []string) error       { return onefillPlain.serve(out, args) }
func serveOnefillSecret(out io.Writer, args []string) error { return onefillSecret.serve(out, args) }

func (t onefillTransport) serve(out io.Writer, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("want the caller's URL, got %q", args)
	}
	listener, err := listen()
	if err != nil {
		return err
	}
	_, _, _, err = t.join(listener, args[0], func(key string) ([]byte, error) { return makeValue(key, valueSize), nil })
	if err != nil {
		return err
	}
	return speak(out, t.url(listener))
}

// connect starts the second process, joins it in a pool of two, and picks keys that it owns.
func (t onefillTransport) connect(b *testing.B, role string) ([]string, *onefill.Group[[]byte]) {
	b.Helper()
	listener, err := listen()
	if err != nil {
		b.Fatal(err)
	}
	other := startSecond(b, role, t.url(listener))
	pool, mesh, group, err := t.join(listener, other, func(string) ([]byte, error) { return nil, errLoadedHere })
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if hits := group.Stats().Hits; hits != 0 {
			b.Errorf("%d reads were no fetch of their own", hits)
		}
		mesh.Close(context.Background())
	})
	keys := make([]string, 0, peerKeys)
	for i := 0; len(keys) < peerKeys; i++ {
		if i == 100*peerKeys {
			b.Fatalf("%s owns %d of %d keys", other, len(keys), i)
		}
		if key := userKey(i); pool.Owner(onefillServed, key) == other {
			keys = append(keys, key)
		}
	}
	return keys, group
}

// connectOnefill asks over plain HTTP.
func connectOnefill(b *testing.B) ([]string, read) {
	keys, group := onefillPlain.connect(b, "serve onefill")
	return keys, onefillRead(group)
}

// connectOnefillSecret asks over TLS 1.3 with both sides authenticated.
func connectOnefillSecret(b *testing.B) ([]string, read) {
	keys, group := onefillSecret.connect(b, "serve onefill-secret")
	return keys, onefillRead(group)
}

// connectOnefillMulti asks for many keys in one call.
func connectOnefillMulti(b *testing.B) ([]string, func(keys []string) (int, error)) {
	keys, group := onefillPlain.connect(b, "serve onefill")
	return keys, func(keys []string) (int, error) {
		values, err := group.GetMulti(context.Background(), keys)
		return len(values), err
	}
}

// rankOnefill finds owners as a pool of these members does.
func rankOnefill(b *testing.B, members []string) func(key string) string {
	b.Helper()
	pool, err := peers.NewPool(members[0], peers.Static(members...), peers.Config{Insecure: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { pool.Close(context.Background()) })
	return func(key string) string { return pool.Owner(onefillServed, key) }
}
