// This file starts a Sentinel group.

package redistest

import (
	"context"
	"os/exec"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// group is the name under which the sentinels know the primary.
const group = "onefill"

// Sentinel is a primary with one replica, and three sentinels that promote the replica about a second after the primary has died.
type Sentinel struct {
	t                testing.TB
	Primary, Replica *Server // as they began
	sentinels        []string
}

// StartSentinel starts the servers and waits until every sentinel knows the replica and the others.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	Require(t, "redis-sentinel")
	s := &Sentinel{t: t}
	s.Primary = Start(t, "--repl-diskless-sync-delay", "0")
	s.Replica = Start(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(s.Primary.port))
	// Sentinels that meet a primary whose replica has not synchronised yet learn of the replica ten seconds later.
	eventually(t, "the replica to follow", func() bool { return info(s.Replica.Addr(), "replication", "master_link_status") == "up" })
	for range 3 {
		s.sentinels = append(s.sentinels, startSentinel(t, s.Primary.port))
	}
	for _, addr := range s.sentinels {
		eventually(t, "the sentinels to know each other", func() bool { return s.knowsAll(addr) })
	}
	return s
}

// startSentinel starts one sentinel and returns its address.
func startSentinel(t testing.TB, primary int) string {
	t.Helper()
	port := freePort(t)
	config := write(t, "sentinel.conf", "port %d\nbind 127.0.0.1\nsentinel monitor %s 127.0.0.1 %d 2\n"+
		"sentinel down-after-milliseconds %s 300\nsentinel failover-timeout %s 3000\n", port, group, primary, group, group)
	command := exec.Command("redis-sentinel", config)
	command.SysProcAttr = dieWithParent()
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return "127.0.0.1:" + strconv.Itoa(port)
}

func (s *Sentinel) knowsAll(addr string) bool {
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	state, err := client.Master(context.Background(), group).Result()
	return err == nil && state["num-slaves"] == "1" && state["num-other-sentinels"] == "2"
}

// Client returns a client that follows the primary, with options changed by the given functions, and closes it when the test ends.
func (s *Sentinel) Client(change ...func(*redis.FailoverOptions)) *redis.Client {
	options := &redis.FailoverOptions{MasterName: group, SentinelAddrs: s.sentinels}
	for _, f := range change {
		f(options)
	}
	client := redis.NewFailoverClient(options)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Failover kills the primary and waits until every sentinel names the replica in its place.
func (s *Sentinel) Failover() {
	s.t.Helper()
	s.Primary.Kill()
	for _, addr := range s.sentinels {
		eventually(s.t, "the replica to be promoted", func() bool { return s.primary(addr) == s.Replica.Addr() })
	}
	eventually(s.t, "the replica to be primary", func() bool { return info(s.Replica.Addr(), "replication", "role") == "master" })
}

// primary returns who a sentinel takes for the primary.
func (s *Sentinel) primary(addr string) string {
	client := redis.NewSentinelClient(&redis.Options{Addr: addr})
	defer func() { _ = client.Close() }()
	parts, err := client.GetMasterAddrByName(context.Background(), group).Result()
	if err != nil || len(parts) != 2 {
		return ""
	}
	return parts[0] + ":" + parts[1]
}
