// Keys under which somebody else has written, or something has been damaged.

package l2_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/l2"
)

// Contract: L13
func TestForeignTypeUnderAKeyIsAMiss(t *testing.T) {
	ctx := context.Background()
	plant := map[string]func(c *redis.Client, name string) error{
		"string": func(c *redis.Client, name string) error { return c.Set(ctx, name, "what is this", 0).Err() },
		"number": func(c *redis.Client, name string) error { return c.Set(ctx, name, "9e300", 0).Err() },
		"nan":    func(c *redis.Client, name string) error { return c.Set(ctx, name, "nan", 0).Err() },
		"list":   func(c *redis.Client, name string) error { return c.RPush(ctx, name, "a", "b").Err() },
		"hash":   func(c *redis.Client, name string) error { return c.HSet(ctx, name, "t", "a", "f", "b").Err() },
		"claim": func(c *redis.Client, name string) error {
			return c.HSet(ctx, name, "t", "a", "f", "1700000000000000").Err()
		}, // without an end
		"stream": func(c *redis.Client, name string) error {
			return c.XAdd(ctx, &redis.XAddArgs{Stream: name, Values: []string{"a", "b"}}).Err()
		},
	}
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		fill(t, claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("x"), true)
		names := make(map[byte]string)
		for _, kind := range []byte("vlfe") {
			names[kind] = strings.Replace(w.named('f'), "}:f:", "}:"+string(kind)+":", 1)
		}
		for kind, name := range names {
			for what, put := range plant {
				t.Logf("a %s under %c", what, kind)
				w.client.Del(ctx, names['v'], names['l'], names['f'], names['e'])
				if err := put(w.client, name); err != nil {
					t.Fatal(err)
				}
				granted := claim(t, tier, onefill.ClaimAsk{Flight: 1, Waited: 17}, onefill.ClaimGranted)
				if granted.Fence < 1e14 || granted.Fence > 9e15 {
					t.Fatalf("the fence is %d", granted.Fence)
				}
				w.client.Del(ctx, name)
				if err := put(w.client, name); err != nil {
					t.Fatal(err)
				}
				fill(t, granted.Claim, value("x"), kind != 'f') // without its fence a load cannot be told from one that comes too late
				if kind != 'f' {
					found(t, tier, "x")
				}
				w.client.Del(ctx, name)
				if err := put(w.client, name); err != nil {
					t.Fatal(err)
				}
				set(t, tier, value("y"))
				found(t, tier, "y")
			}
		}
	})
}

// Contract: L13, T7
func TestDamagedValueIsLoadedAgainWithAWarning(t *testing.T) {
	ctx := context.Background()
	damages := map[string]func(v string) string{
		"cut in half":       func(v string) string { return v[:len(v)/2] },
		"cut to its header": func(v string) string { return v[:51] },
		"a bit flipped":     func(v string) string { return v[:60] + string(v[60]^1) + v[61:] },
		"number flipped":    func(v string) string { return v[:4] + string(v[4]^1) + v[5:] },
		"numbers too large": func(v string) string { return v[:4] + strings.Repeat("9", 32) + v[36:] },
		"newer release":     func(v string) string { return "1fe2" + v[4:] },
		"plain text":        func(string) string { return `{"name":"Ann"}` },
		"empty":             func(string) string { return "" },
	}
	inRedis(t, func(t *testing.T, w *world) {
		tier, _ := w.process()
		waiter, _ := w.process()
		for name, damage := range damages {
			t.Logf("%s", name)
			set(t, tier, value(strings.Repeat("Ann", 20)))
			v := w.client.Get(ctx, w.named('v')).Val()
			if err := w.client.Set(ctx, w.named('v'), damage(v), time.Minute).Err(); err != nil {
				t.Fatal(err)
			}
			granted := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
			if granted.Fence > 9e15 {
				t.Fatalf("the fence is %d", granted.Fence)
			}
			claim(t, waiter, onefill.ClaimAsk{Flight: 2}, onefill.ClaimHeld)
			fill(t, granted.Claim, value("new"), true)
			found(t, tier, "new")
		}
		if n := w.log.count("cannot be read"); n == 0 || n > 2*2 { // one a second at most, from each process
			t.Fatalf("%d warnings", n)
		}
	})
}

// Contract: L15, O3
func TestValueEncryptedWithAnUnknownKeyIsLoadedAgain(t *testing.T) {
	inRedis(t, func(t *testing.T, w *world) {
		keyed := func(c byte) func(*l2.Config) {
			return func(cfg *l2.Config) {
				cfg.Keys = []l2.Key{{ID: string(c), Secret: []byte(strings.Repeat(string(c), 32))}}
			}
		}
		one, _ := w.process(keyed('1'))
		two, _ := w.process(keyed('2'))
		set(t, one, value("one"))
		if raw := w.client.Get(context.Background(), w.named('v')).Val(); strings.Contains(raw, "one") {
			t.Fatal("the value stands in Redis as it is")
		}
		fill(t, claim(t, two, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted).Claim, value("two"), true)
		found(t, two, "two")
		claim(t, one, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
	})
}
