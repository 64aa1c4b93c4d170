package bench

// golang/groupcache as a contender. Values are handed out as ByteViews, which share the cache's memory: its cheapest way to be read.

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/golang/groupcache"
	"github.com/golang/groupcache/consistenthash"
)

// groupcacheGroups counts groups, whose names must differ within a process and which live as long as it does.
var groupcacheGroups atomic.Int64

// openGroupcache opens a group without peers. A hit takes the group's one lock, finds the entry in a map and moves it to the front of a list. Its sink is
// an allocation. Entries have no expiry. The capacity has half as much again as it counts, since it holds back an eighth for hot copies.
func openGroupcache(entries, entryBytes int, load load) (read, func(), error) {
	name := fmt.Sprintf("cache-%d", groupcacheGroups.Add(1))
	return groupcacheRead(name, int64(entries)*int64(entryBytes)*3/2, load), func() {}, nil
}

func groupcacheRead(name string, capacity int64, load load) read {
	group := groupcache.NewGroup(name, capacity, groupcache.GetterFunc(func(_ context.Context, key string, dest groupcache.Sink) error {
		value, err := load(key)
		if err != nil {
			return err
		}
		return dest.SetBytes(value)
	}))
	return func(key string) (int, error) {
		var view groupcache.ByteView
		err := group.Get(context.Background(), key, groupcache.ByteViewSink(&view))
		return view.Len(), err
	}
}

const groupcacheServed = "served"

// serveGroupcache is a role: a process with one group, which keeps all that it loads.
func serveGroupcache(out io.Writer, _ []string) error {
	listener, err := listen()
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	groupcacheRead(groupcacheServed, 64<<20, func(key string) ([]byte, error) { return makeValue(key, valueSize), nil })
	go http.Serve(listener, groupcache.NewHTTPPoolOpts(url, nil))
	return speak(out, url)
}

// groupcachePool is the one pool that golang/groupcache allows a process. Its transport keeps a connection for every caller, where the default keeps two
// and opens another for most fetches of sixteen callers.
var groupcachePool = sync.OnceValue(func() *groupcache.HTTPPool {
	pool := groupcache.NewHTTPPoolOpts("http://caller.invalid", nil)
	transport := keepAliveTransport()
	pool.Transport = func(context.Context) http.RoundTripper { return transport }
	return pool
})

// groupcacheCaller reads from whatever the pool's peers are at the time. A group of capacity 0 keeps nothing: otherwise one fetched value in ten would
// become a hot copy, and reads of it no fetch.
var groupcacheCaller = sync.OnceValue(func() read {
	return groupcacheRead(groupcacheServed, 0, func(string) ([]byte, error) { return nil, errLoadedHere })
})

// connectGroupcache makes the second process the only peer, which owns all keys. A fetch is a GET with the key in the path, answered by a protobuf message.
func connectGroupcache(b *testing.B) ([]string, read) {
	groupcachePool().Set(startSecond(b, "serve groupcache"))
	b.Cleanup(func() { groupcachePool().Set() })
	return userKeys(peerKeys), groupcacheCaller()
}

// rankGroupcache finds owners on golang/groupcache's ring: 50 points a member and crc32, as its HTTPPool has by default.
func rankGroupcache(members []string) func(key string) string {
	ring := consistenthash.New(50, nil)
	ring.Add(members...)
	return ring.Get
}
