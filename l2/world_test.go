// The worlds in which the tests of this package run: the tier in memory, over miniredis in fake time, and over a real server. What is asserted stands in the
// other files.

package l2_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/redistest"
	"github.com/onefill/onefill/l2"
)

// member is a mesh as a tier sees it: it remembers what it hears.
type member struct {
	namespace string

	mu     sync.Mutex // guards what follows
	heard  []*onefill.Invalidation
	number uint64
	news   chan struct{} // gets a sign for everything heard
}

func newMember(namespace string) *member {
	return &member{namespace: namespace, news: make(chan struct{}, 1000)}
}

func (m *member) Namespace() string { return m.namespace }

func (m *member) Hear(inv *onefill.Invalidation) {
	m.mu.Lock()
	m.heard = append(m.heard, inv)
	m.mu.Unlock()
	m.news <- struct{}{}
}

func (m *member) Clock() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.number
}

func (m *member) Merge(n uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.number = max(m.number, n)
}

// invalidations returns what was heard so far.
func (m *member) invalidations() []*onefill.Invalidation {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.heard)
}

// memoryLog remembers lines.
type memoryLog struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *memoryLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *memoryLog) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *memoryLog) WithGroup(string) slog.Handler            { return l }
func (l *memoryLog) Handle(_ context.Context, r slog.Record) error {
	line := r.Message
	r.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

// count returns how many lines contain text.
func (l *memoryLog) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// world is one store that any number of processes share.
type world struct {
	t      *testing.T
	log    *memoryLog
	client *redis.Client                               // nil in memory
	open   func(...func(*redis.Options)) *redis.Client // another client
	memory *l2.MemoryStore
	pause  func(time.Duration) // lets time pass; nil where time is real
}

// inEveryWorld runs a scenario on each kind of tier.
func inEveryWorld(t *testing.T, scenario func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			scenario(t, &world{t: t, log: &memoryLog{}, memory: l2.Memory(), pause: time.Sleep})
		})
	})
	inRedis(t, scenario)
}

// inRedis runs a scenario over miniredis and over a real server.
func inRedis(t *testing.T, scenario func(t *testing.T, w *world)) {
	t.Helper()
	t.Run("miniredis", func(t *testing.T) { inFakeTime(t, scenario) })
	t.Run("redis", func(t *testing.T) { scenario(t, inRealTime(t, redistest.Start(t))) })
}

// inFakeTime runs a scenario in a bubble over miniredis.
func inFakeTime(t *testing.T, scenario func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true)
		t.Cleanup(server.Close)
		w := &world{t: t, log: &memoryLog{}, pause: time.Sleep}
		w.open = func(change ...func(*redis.Options)) *redis.Client {
			options := &redis.Options{
				Addr:          "127.0.0.1:6379", // unused; a name would be looked up outside the bubble
				Dialer:        func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
				DialerRetries: 1,
			}
			for _, c := range change {
				c(options)
			}
			client := redis.NewClient(options)
			t.Cleanup(func() { _ = client.Close() })
			return client
		}
		w.client = w.open()
		scenario(t, w)
	})
}

func inRealTime(t *testing.T, server *redistest.Server) *world {
	t.Helper()
	return &world{t: t, log: &memoryLog{}, client: server.Client(), open: server.Client}
}

// process returns the tier of another process, which is closed at the end of the test, and its mesh.
func (w *world) process(change ...func(*l2.Config)) (onefill.Tier, *member) {
	w.t.Helper()
	m := newMember("test")
	if w.memory != nil {
		if err := w.memory.Join(m); err != nil {
			w.t.Fatal(err)
		}
		return w.memory, m
	}
	return w.join(w.open(), m, change...), m
}

// join returns a tier over a client of its own.
func (w *world) join(client redis.UniversalClient, m onefill.TierMember, change ...func(*l2.Config)) *l2.Store {
	w.t.Helper()
	cfg := l2.Config{Logger: slog.New(w.log)}
	if w.pause == nil { // a machine under load must not look like a server that hangs
		cfg.TierTimeout = 5 * time.Second
	}
	for _, c := range change {
		c(&cfg)
	}
	tier, err := l2.Redis(client, cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := tier.Join(m); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := tier.Close(ctx); err != nil {
			w.t.Error(err)
		}
	})
	return tier
}

// key is the entry that most tests are about.
var key = onefill.TierKey{Group: "users", Version: "1", Key: "42"}

// value is an answer that lives for a while.
func value(data string) *onefill.Answer {
	return &onefill.Answer{Status: onefill.StatusValue, Data: data, Life: time.Minute}
}

// claim asks and wants a state.
func claim(t *testing.T, tier onefill.Tier, ask onefill.ClaimAsk, want onefill.ClaimState) onefill.ClaimReply {
	t.Helper()
	return claimKey(t, tier, key, ask, want)
}

func claimKey(t *testing.T, tier onefill.Tier, key onefill.TierKey, ask onefill.ClaimAsk, want onefill.ClaimState) onefill.ClaimReply {
	t.Helper()
	reply, err := tier.Claim(context.Background(), key, ask)
	if err != nil {
		t.Fatalf("claim: %v", err)
	}
	if reply.State != want {
		t.Fatalf("claim: state %d, want %d: %+v", reply.State, want, reply)
	}
	return reply
}

// fill ends a claim with a value and wants to be told whether it was stored.
func fill(t *testing.T, c onefill.Claim, a *onefill.Answer, want bool) {
	t.Helper()
	stored, err := c.Fill(context.Background(), a)
	if err != nil || stored != want {
		t.Fatalf("fill: stored %v, %v, want %v", stored, err, want)
	}
}

// invalidate drops keys and returns the number.
func invalidate(t *testing.T, tier onefill.Tier, keys ...string) uint64 {
	t.Helper()
	n, err := tier.Invalidate(context.Background(), &onefill.Invalidation{Group: key.Group, Version: key.Version, Keys: keys}, 0)
	if err != nil {
		t.Fatalf("invalidate: %v", err)
	}
	return n
}

// set stores a value as Set does and returns the number.
func set(t *testing.T, tier onefill.Tier, a *onefill.Answer) uint64 {
	t.Helper()
	n, err := tier.Invalidate(context.Background(), &onefill.Invalidation{Group: key.Group, Version: key.Version, Keys: []string{key.Key}, Value: a}, 0)
	if err != nil {
		t.Fatalf("set: %v", err)
	}
	return n
}

// found wants data under the key.
func found(t *testing.T, tier onefill.Tier, data string) onefill.ClaimReply {
	t.Helper()
	reply := claim(t, tier, onefill.ClaimAsk{Flight: 1}, onefill.ClaimValue)
	if reply.Value.Data != data {
		t.Fatalf("the tier has %q, want %q", reply.Value.Data, data)
	}
	return reply
}

// named returns the name of the entry's key of one kind in Redis.
func (w *world) named(kind byte) string {
	w.t.Helper()
	all, err := w.client.Keys(context.Background(), "test:{*}:"+string(kind)+":users:42").Result()
	if err != nil || len(all) != 1 {
		w.t.Fatalf("keys of kind %c: %q, %v", kind, all, err)
	}
	return all[0]
}

// drop deletes the entry's key of one kind in Redis, as its expiry would.
func (w *world) drop(kind byte) {
	w.t.Helper()
	if err := w.client.Del(context.Background(), w.named(kind)).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// run runs a script on the entry's keys, as a process would.
func (w *world) run(script *redis.Script, args ...any) any {
	w.t.Helper()
	fence := w.named('f')
	at := strings.Index(fence, "}:f:") + 2
	var keys []string
	for _, kind := range "vlfe" {
		keys = append(keys, fence[:at]+string(kind)+fence[at+1:])
	}
	reply, err := script.Run(context.Background(), w.client, keys, args...).Result()
	if err != nil {
		w.t.Fatal(err)
	}
	return reply
}
