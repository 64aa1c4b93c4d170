//go:build timing

// How long things take: run with -tags timing on a machine that does nothing else.

package l2_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
)

// Contract: L4
func TestTimingWakeLag(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	holder, _ := w.process()
	var waiters []onefill.Tier
	for range 10 {
		tier, _ := w.process()
		waiters = append(waiters, tier)
	}
	var lags []time.Duration
	for round := range 100 {
		k := onefill.TierKey{Group: "users", Key: strconv.Itoa(round)}
		granted := claimKey(t, holder, k, onefill.ClaimAsk{Flight: 1}, onefill.ClaimGranted)
		returned := make(chan time.Time, len(waiters))
		for _, tier := range waiters {
			go func() {
				var held onefill.ClaimReply
				for {
					reply, err := tier.Claim(context.Background(), k, onefill.ClaimAsk{Flight: 2, Waited: held.Fence})
					if err != nil || reply.State == onefill.ClaimValue {
						returned <- time.Now()
						return
					}
					held = reply
					_ = tier.Wait(context.Background(), k, held)
				}
			}()
		}
		channel := ""
		eventually(t, "all to wait", func() bool {
			if channel == "" {
				channel = w.client.Keys(context.Background(), "*:l:users:"+strconv.Itoa(round)).Val()[0]
			}
			return w.client.PubSubNumSub(context.Background(), channel).Val()[channel] == int64(len(waiters))
		})
		<-time.After(50 * time.Millisecond) // they have asked again, and wait
		landed := time.Now()
		fill(t, granted.Claim, value("x"), true)
		for range waiters {
			lags = append(lags, (<-returned).Sub(landed))
		}
	}
	best := time.Hour
	for batch := range slices.Chunk(lags, len(lags)/5) { // the calmest fifth of the time counts: what else the machine does is not measured here
		slices.Sort(batch)
		p50, p99 := batch[len(batch)/2], batch[len(batch)*99/100]
		t.Logf("wake lag of 10 waiters, from the call of Fill: p50 %v, p99 %v, max %v", p50, p99, batch[len(batch)-1])
		best = min(best, p99)
	}
	if best > 5*time.Millisecond {
		t.Errorf("p99 %v at best, want at most 5 ms", best)
	}
}

// Contract: L1
func TestTimingHitAgainstAPlainGet(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	tier, _ := w.process()
	set(t, tier, value(string(make([]byte, 100))))
	name := w.named('v')
	get := func() { _ = w.client.Get(context.Background(), name).Err() }
	hit := func() { _, _ = tier.Claim(context.Background(), key, onefill.ClaimAsk{Flight: 1}) }
	bare, ours := time.Duration(1<<62), time.Duration(1<<62)
	for range 5 {
		bare, ours = min(bare, each(2000, get)), min(ours, each(2000, hit))
	}
	ratio := float64(ours) / float64(bare)
	t.Logf("a hit takes %v, a bare GET %v: %.2f times", ours, bare, ratio)
	if ratio > 1.7 {
		t.Errorf("%.2f times, want at most 1.7", ratio)
	}
}

// Contract: L2
func TestTimingColdFillAgainstALockPerKey(t *testing.T) {
	w := inRealTime(t, redistest.Start(t))
	tier, _ := w.process()
	ctx, n := context.Background(), 0
	ours := func() {
		n++
		k := onefill.TierKey{Group: "users", Key: strconv.Itoa(n)}
		reply, err := tier.Claim(ctx, k, onefill.ClaimAsk{Flight: 1})
		if err != nil || reply.State != onefill.ClaimGranted {
			t.Fatal(reply, err)
		}
		fill(t, reply.Claim, value("x"), true)
	}
	theirs := func() { // as everyone writes it
		n++
		k := strconv.Itoa(n)
		_ = w.client.Get(ctx, k).Err()
		_ = w.client.SetArgs(ctx, "lock:"+k, "me", redis.SetArgs{Mode: "NX", TTL: time.Second}).Err()
		_ = w.client.Get(ctx, k).Err()
		_ = w.client.Set(ctx, k, "x", time.Minute).Err()
		_ = w.client.Del(ctx, "lock:"+k).Err()
	}
	a, b := time.Duration(1<<62), time.Duration(1<<62)
	for range 5 {
		a, b = min(a, each(1000, ours)), min(b, each(1000, theirs))
	}
	t.Logf("a cold fill takes %v, with a lock per key %v: %.2f times", a, b, float64(a)/float64(b))
	if float64(a) > 0.8*float64(b) {
		t.Errorf("want at most 0.8 times")
	}
}

// each returns how long one of n calls takes.
func each(n int, call func()) time.Duration {
	began := time.Now()
	for range n {
		call()
	}
	return time.Since(began) / time.Duration(n)
}
