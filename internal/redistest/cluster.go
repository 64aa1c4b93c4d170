// This file starts a Cluster.

package redistest

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Cluster of three primaries without replicas.
type Cluster struct {
	t       testing.TB
	Servers []*Server
}

// StartCluster starts a Cluster and waits until all its slots are served.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	Require(t, "redis-cli")
	c := &Cluster{t: t}
	create := []string{"--cluster", "create"}
	for range 3 {
		s := start(t, 0, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-node-timeout", "2000")
		c.Servers = append(c.Servers, s)
		create = append(create, s.Addr())
	}
	create = append(create, "--cluster-replicas", "0", "--cluster-yes")
	if output, err := exec.Command("redis-cli", create...).CombinedOutput(); err != nil {
		t.Fatalf("redis-cli --cluster create: %v\n%s", err, output)
	}
	for _, s := range c.Servers {
		eventually(t, "the Cluster to be complete", func() bool { return complete(s.Addr()) })
	}
	return c
}

// complete reports whether a server knows the whole Cluster and answers for it.
func complete(addr string) bool {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	state, _ := client.ClusterInfo(context.Background()).Result()
	for _, line := range []string{"cluster_state:ok", "cluster_slots_ok:16384", "cluster_known_nodes:3"} {
		if !strings.Contains(state, line+"\r\n") {
			return false
		}
	}
	return true
}

// Client returns a client of the Cluster, with options changed by the given functions, and closes it when the test ends.
func (c *Cluster) Client(change ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	options := &redis.ClusterOptions{}
	for _, s := range c.Servers {
		options.Addrs = append(options.Addrs, s.Addr())
	}
	for _, f := range change {
		f(options)
	}
	client := redis.NewClusterClient(options)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}
