package peers_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// Two processes of a pool, here in one program: whichever is asked, the one that owns the key loads it.
func ExampleNewPool() {
	ctx := context.Background()
	listeners := []net.Listener{exampleListener(), exampleListener()}
	urls := []string{"http://" + listeners[0].Addr().String(), "http://" + listeners[1].Addr().String()}
	var loads atomic.Int64
	greet := func(ctx context.Context, name string) (string, error) {
		loads.Add(1)
		return "Hello, " + name, nil
	}
	var groups []*onefill.Group[string]
	for i, listener := range listeners {
		pool, err := peers.NewPool(urls[i], peers.Static(urls...), peers.Config{})
		if err != nil {
			fmt.Println(err)
			return
		}
		mesh, err := onefill.New(onefill.Config{Namespace: "example", Peers: pool})
		if err != nil {
			fmt.Println(err)
			return
		}
		defer mesh.Close(ctx)
		go pool.Serve(listener)
		greetings, err := onefill.NewGroup(mesh, "greetings", greet)
		if err != nil {
			fmt.Println(err)
			return
		}
		groups = append(groups, greetings)
	}
	for _, greetings := range groups {
		fmt.Println(greetings.Get(ctx, "Ada"))
	}
	fmt.Println(loads.Load(), "load")
	// Output:
	// Hello, Ada <nil>
	// Hello, Ada <nil>
	// 1 load
}

// A pool on the port of the program's own server.
func ExamplePool_ServeHTTP() {
	pool, err := peers.NewPool("http://127.0.0.1:8080", peers.Static("http://127.0.0.1:8080", "http://127.0.0.1:8081"), peers.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	mux := http.NewServeMux()
	mux.Handle(peers.Path, pool)
	fmt.Println(pool.Self())
	// Output: http://127.0.0.1:8080
}

func exampleListener() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return listener
}
