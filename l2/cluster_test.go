// A Cluster and a Sentinel group under the tier.

package l2_test

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
)

// Contract: L10
func TestEntriesOfACluster(t *testing.T) {
	cluster := redistest.StartCluster(t)
	w := &world{t: t, log: &memoryLog{}}
	one := w.join(cluster.Client(), newMember("te{st"))
	hears := newMember("te{st")
	two := w.join(cluster.Client(), hears)
	var all []string
	for _, k := range []string{"plain", "{", "}", "{}", "}{", "{a}", "x{}y", "{a}{b}"} {
		all = append(all, k)
		k := onefill.TierKey{Group: "g{" + k + "}", Version: "{1}", Key: k}
		granted := claimKey(t, one, k, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := claimKey(t, two, k, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
		woken := make(chan error, 1)
		go func() { woken <- two.Wait(context.Background(), k, held) }()
		fill(t, granted.Claim, value("x"), true)
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		claimKey(t, two, k, onefill.ClaimAsk{Flight: 2}, onefill.ClaimValue)
	}
	for i := range 100 {
		all = append(all, strconv.Itoa(i))
	}
	awaitHearing(t, w, one, hears)
	for len(hears.news) > 0 {
		<-hears.news
	}
	invalidate(t, one, all...) // in every slot range, with one message
	<-hears.news
	heard := hears.invalidations()
	if last := heard[len(heard)-1]; len(last.Keys) != len(all) {
		t.Fatalf("heard of %d keys, want %d", len(last.Keys), len(all))
	}
	if w.log.count("may have been missed") != 0 {
		t.Fatalf("the log has %q", w.log.lines)
	}
}

// Contract: L10
func TestSlotThatMovesTakesItsClaimsAlong(t *testing.T) {
	cluster := redistest.StartCluster(t)
	w := &world{t: t, log: &memoryLog{}}
	client := cluster.Client()
	tier := w.join(client, newMember("test"))
	other := w.join(cluster.Client(), newMember("test"))
	granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	var name string
	for _, s := range cluster.Servers {
		node := redis.NewClient(&redis.Options{Addr: s.Addr()})
		defer func() { _ = node.Close() }()
		if found := node.Keys(t.Context(), "*:l:users:42").Val(); len(found) == 1 {
			name = found[0]
		}
	}
	moveSlot(t, cluster, int(client.ClusterKeySlot(t.Context(), name).Val()))
	claim(t, other, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
	fill(t, granted.Claim, value("x"), true)
	found(t, other, "x")
	if tier.State() != "up" || other.State() != "up" {
		t.Fatalf("the tier is %s and %s", tier.State(), other.State())
	}
}

// moveSlot moves a slot with its keys to another node.
func moveSlot(t *testing.T, cluster *redistest.Cluster, slot int) {
	t.Helper()
	ctx := t.Context()
	type node struct {
		*redis.Client
		id, port string
	}
	var from, to *node
	for _, s := range cluster.Servers {
		n := &node{Client: redis.NewClient(&redis.Options{Addr: s.Addr()})}
		defer func() { _ = n.Close() }()
		n.id = n.ClusterMyID(ctx).Val()
		_, n.port, _ = strings.Cut(s.Addr(), ":")
		if owns(t, n.Client, n.id, slot) {
			from = n
		} else {
			to = n
		}
	}
	do := func(n *node, args ...any) {
		t.Helper()
		if err := n.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.id)
	do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
	keys := from.ClusterGetKeysInSlot(ctx, slot, 100).Val()
	args := []any{"MIGRATE", "127.0.0.1", to.port, "", 0, 5000, "KEYS"}
	for _, k := range keys {
		args = append(args, k)
	}
	do(from, args...)
	do(to, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
	do(from, "CLUSTER", "SETSLOT", slot, "NODE", to.id)
}

// owns reports whether a node serves a slot.
func owns(t *testing.T, c *redis.Client, id string, slot int) bool {
	t.Helper()
	shards, err := c.ClusterShards(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		for _, r := range s.Slots {
			if r.Start <= int64(slot) && int64(slot) <= r.End {
				return s.Nodes[0].ID == id
			}
		}
	}
	return false
}

// Contract: L10, L9
func TestFailoverCostsAtMostOneMoreLoad(t *testing.T) {
	s := redistest.StartSentinel(t)
	w := &world{t: t, log: &memoryLog{}}
	tier := w.join(s.Client(), newMember("test"), quick)
	hears := newMember("test")
	other := w.join(s.Client(), hears, quick)
	awaitHearing(t, w, tier, hears)
	granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	s.Failover()
	eventually(t, "both to be up again", func() bool { return tier.State() == "up" && other.State() == "up" })
	// Whether the replica knew the claim depends on the moment. Either the fill is taken, or one other loads.
	stored, err := granted.Claim.Fill(context.Background(), value("first"))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := other.Claim(context.Background(), key, onefill.ClaimAsk{Flight: 2})
	if err != nil || stored != (reply.State == onefill.ClaimValue) {
		t.Fatalf("stored %v, then %+v, %v", stored, reply, err)
	}
	for len(hears.news) > 0 {
		<-hears.news
	}
	awaitHearing(t, w, tier, hears) // messages are heard from the new primary
	if w.log.count("may have been missed") == 0 {
		t.Fatal("the gap went unnoticed")
	}
}

// Contract: L19
func TestUserWithTheDocumentedRightsIsEnough(t *testing.T) {
	server := redistest.Start(t)
	w := inRealTime(t, server)
	rules := []any{"ACL", "SETUSER", "onefill", "reset", "on", ">secret"}
	for _, rule := range strings.Fields(documentedRules(t)) {
		rules = append(rules, rule)
	}
	if err := w.client.Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
	user := func(o *redis.Options) { o.Username, o.Password = "onefill", "secret" }
	hears := newMember("shop-prod")
	tier := w.join(server.Client(user), newMember("shop-prod"))
	other := w.join(server.Client(user), hears)
	if err := w.client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	returned := await(t, other)
	granted.Claim.Waits([]uint64{1, 2})
	eventually(t, "the waiter to subscribe", func() bool { return len(w.client.PubSubChannels(t.Context(), "*:l:*").Val()) == 1 })
	fill(t, granted.Claim, value("x"), true)
	<-returned
	again := claim(t, tier, onefill.ClaimAsk{Flight: 3, Have: granted.Fence}, onefill.ClaimGranted)
	if err := again.Claim.Abandon(t.Context(), &onefill.Answer{Status: onefill.StatusError}); err != nil {
		t.Fatal(err)
	}
	awaitHearing(t, w, tier, hears)
	set(t, tier, value("y"))
	if err := tier.Ready(t.Context()); err != nil || tier.State() != "up" {
		t.Fatalf("%v, %s", err, tier.State())
	}
	denied := w.client.Do(t.Context(), "ACL", "LOG").Val()
	if all, _ := denied.([]any); len(all) != 0 {
		t.Fatalf("denied: %v", all)
	}
	if _, err := server.Client(user).Get(t.Context(), "other:key").Result(); err == nil || !strings.Contains(err.Error(), "NOPERM") {
		t.Fatalf("the user reads another's key: %v", err)
	}
}
