// docs/redis.md against what is so: the rights that it lists, the figures that it gives, the script for other languages.

package l2_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
)

// document returns the text of docs/redis.md after a heading.
func document(t *testing.T, heading string) string {
	t.Helper()
	b, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(b), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("docs/redis.md has no heading %q", heading)
	}
	return rest
}

// block returns the first piece of code after a heading.
func block(t *testing.T, heading string) string {
	t.Helper()
	_, rest, _ := strings.Cut(document(t, heading), "```")
	_, rest, _ = strings.Cut(rest, "\n")
	code, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatalf("docs/redis.md has no code under %q", heading)
	}
	return code
}

// documentedRules returns the ACL rules that docs/redis.md gives.
func documentedRules(t *testing.T) string {
	t.Helper()
	_, rules, found := strings.Cut(block(t, "Rights"), ">secret")
	if !found {
		t.Fatal("docs/redis.md gives no rules")
	}
	return rules
}

// Contract: L19
func TestDocumentedMemoryIsWhatRedisSays(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	if version := w.client.InfoMap(t.Context(), "server").Item("Server", "redis_version"); version != "7.0.15" {
		t.Skipf("the figures are of Redis 7.0.15, this is %s", version)
	}
	tier := w.join(w.open(), newMember("shop-prod"))
	text := document(t, "Memory")
	usage := func(kind string) int64 {
		t.Helper()
		n, err := w.client.MemoryUsage(t.Context(), "shop-prod:{8115ac1a0f77e02b}:"+kind+":users:42").Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, size := range []int{0, 100, 1000, 10000} {
		granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		held := usage("l")
		fill(t, granted.Claim, value(noise(size)), true)
		stored := usage("v")
		_, rest, _ := strings.Cut(text, "\n| "+thousands(int64(size))+" | ")
		row, _, _ := strings.Cut(rest, " |\n")
		alone, withFence, _ := strings.Cut(row, " | ")
		_, rest, _ = strings.Cut(text, "A claim takes ")
		claimed, _, _ := strings.Cut(rest, " more")
		if !near(alone, stored) || !near(withFence, stored+usage("f")) || !near(claimed, held) {
			t.Errorf("%d bytes take %d, with the fence %d, a claim %d; docs/redis.md says %s, %s and %s", size, stored, stored+usage("f"), held, alone, withFence, claimed)
		}
		invalidate(t, tier, "42")
	}
}

// near reports whether a figure is right to a tenth: the allocator's size classes decide about the rest.
func near(figure string, n int64) bool {
	said, err := strconv.ParseInt(strings.ReplaceAll(figure, ",", ""), 10, 64)
	return err == nil && said*10 >= n*9 && said*10 <= n*11
}

func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	if len(s) > 3 {
		s = s[:len(s)-3] + "," + s[len(s)-3:]
	}
	return s
}

// noise returns bytes that do not compress.
func noise(n int) string {
	b, x := make([]byte, n), uint64(1)
	for i := range b {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	return string(b)
}

// Contract: L19
func TestProcessHasOneConnectionForWhatItHears(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	speaker, _ := w.process()
	for n := 2; n <= 4; n++ {
		_, m := w.process()
		awaitHearing(t, w, speaker, m)
		clients := w.client.ClientList(t.Context()).Val()
		if got := strings.Count(clients, "cmd=subscribe"); got != n {
			t.Fatalf("%d processes have %d subscriptions", n, got)
		}
	}
}

// Contract: I1
func TestScriptForOtherLanguagesInvalidates(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	m := newMember("shop-prod")
	tier := w.join(w.open(), m)
	waiter := w.join(w.open(), newMember("shop-prod"))
	script := redis.NewScript(block(t, "Invalidating from another language"))
	run := func(key string) uint64 {
		t.Helper()
		var names []string
		for _, kind := range "vlfe" {
			names = append(names, "shop-prod:{8115ac1a0f77e02b}:"+string(kind)+":users:"+key)
		}
		text, err := script.Run(t.Context(), w.client, names, "shop-prod", "users", "1", key).Text()
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	eventually(t, "messages to be heard", func() bool { run("other"); return len(m.news) > 0 })
	granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	held := claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
	number := run("42")
	if number <= granted.Fence {
		t.Fatalf("the script gives %d, the load before it had %d", number, granted.Fence)
	}
	var last *onefill.Invalidation
	eventually(t, "the message", func() bool {
		heard := m.invalidations()
		last = heard[len(heard)-1]
		return last.Keys[0] == "42"
	})
	if last.Number != number || last.Group != "users" || last.Version != "1" || len(last.Keys) != 1 {
		t.Fatalf("heard %+v", last)
	}
	fill(t, granted.Claim, value("old"), false)
	if err := waiter.Wait(context.Background(), key, held); err != nil {
		t.Fatal(err)
	}
	claim(t, waiter, onefill.ClaimAsk{Flight: 2, Waited: held.Fence}, onefill.ClaimGranted)
	long := strings.Repeat("k", 300) // a length of two bytes
	run(long)
	eventually(t, "the long key to be heard", func() bool {
		heard := m.invalidations()
		return heard[len(heard)-1].Keys[0] == long
	})
}

// Contract: L19
func TestNoEvictionPolicyBringsAWrongValue(t *testing.T) {
	for _, policy := range []string{"noeviction", "allkeys-lru", "allkeys-lfu", "allkeys-random", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"} {
		t.Run(policy, func(t *testing.T) {
			w := inRealTime(t, redistest.Start(t, "--maxmemory", "3mb", "--maxmemory-policy", policy))
			tier, _ := w.process()
			data := noise(100 << 10)
			stored, refused := 0, 0
			for i := range 80 {
				k := onefill.TierKey{Group: "users", Key: strconv.Itoa(i % 50)}
				want := k.Key + data
				reply, err := tier.Claim(t.Context(), k, onefill.ClaimAsk{Flight: 1})
				switch {
				case err != nil && policy == "noeviction" && strings.Contains(err.Error(), "OOM"):
					refused++
				case err != nil:
					t.Fatal(err)
				case reply.State == onefill.ClaimValue && reply.Value.Data != want:
					t.Fatalf("key %s has another's value", k.Key)
				case reply.State == onefill.ClaimGranted:
					ok, err := reply.Claim.Fill(t.Context(), value(want))
					switch {
					case err == nil && ok:
						stored++
					case err != nil:
						refused++
					}
				}
			}
			if tier.State() != "up" || stored < 10 || (refused > 0) != (policy == "noeviction") {
				t.Fatalf("%d stored, %d refused, the tier is %s", stored, refused, tier.State())
			}
		})
	}
}
