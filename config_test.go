// What constructors and options refuse, and in which words.

package onefill_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/internal/wire"
	"github.com/onefill/onefill/peers"
)

// refused fails the test unless err begins with prefix and names what is wrong and its value.
func refused(t *testing.T, err error, prefix string, words ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%q: not refused", words)
		return
	}
	if !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("%v: does not begin with %q", err, prefix)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%v: does not say %q", err, word)
		}
	}
}

// Contract: O2
func TestNewNamesTheFieldThatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		cfg   onefill.Config
		words []string
	}{
		{onefill.Config{}, []string{"Config.Namespace", `""`}},
		{onefill.Config{Namespace: strings.Repeat("n", 256)}, []string{"Config.Namespace", "256"}},
		{onefill.Config{Namespace: "test", MaxBytes: -1}, []string{"Config.MaxBytes", "-1"}},
	} {
		_, err := onefill.New(tc.cfg)
		refused(t, err, "onefill: ", tc.words...)
	}
}

// One pool is one process's membership: a second mesh would answer in the first one's name.
func TestPoolServesOneMesh(t *testing.T) {
	pool, err := peers.NewPool(urlOf(0), peers.Static(urlOf(0)), peers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	newMesh(t, onefill.Config{Peers: pool})
	_, err = onefill.New(onefill.Config{Namespace: "test", Peers: pool})
	refused(t, err, "onefill: ", "Config.Peers", "another mesh")
}

// A pool's handler may be mounted before the mesh is made.
//
// Contract: S3
func TestPoolWithoutAMeshAnswersThatItIsUnavailable(t *testing.T) {
	pool, err := peers.NewPool(urlOf(0), peers.Static(urlOf(0)), peers.Config{})
	if err != nil {
		t.Fatal(err)
	}
	hello := wire.AppendHello(wire.Begin(nil), &wire.Hello{Namespace: "test", ID: "another", Incarnation: 1, Session: 1})
	request := httptest.NewRequest(http.MethodPost, "/_onefill/v1", bytes.NewReader(hello))
	request.Header.Set("Content-Type", "application/x-onefill")
	response := httptest.NewRecorder()
	pool.ServeHTTP(response, request)
	if response.Code != http.StatusServiceUnavailable {
		t.Errorf("answered %d", response.Code)
	}
}

func TestNewPoolNamesTheArgumentThatIsWrong(t *testing.T) {
	here := peers.Static(urlOf(0))
	for name, tc := range map[string]struct {
		self  string
		src   peers.Source
		cfg   peers.Config
		words []string
	}{
		"empty self":           {"", here, peers.Config{}, []string{"self", `""`}},
		"malformed self":       {"127.0.0.1:7000", here, peers.Config{}, []string{"self", "127.0.0.1:7000"}},
		"self not in the list": {urlOf(1), here, peers.Config{}, []string{"self", urlOf(1)}},
		"no source":            {urlOf(0), nil, peers.Config{}, []string{"source", "nil"}},
		"public and open":      {"http://10.0.0.3:7946", peers.Static("http://10.0.0.3:7946"), peers.Config{}, []string{"10.0.0.3", "Secrets", "TLS", "Insecure"}},
		"negative silence":     {urlOf(0), here, peers.Config{PeerSilence: -time.Second}, []string{"Config.PeerSilence", "-1s"}},
		"negative pending":     {urlOf(0), here, peers.Config{MaxPending: -5}, []string{"Config.MaxPending", "-5"}},
		"short secret":         {"https://10.0.0.3:7946", peers.Static("https://10.0.0.3:7946"), peers.Config{Secrets: []string{"short"}}, []string{"Config.Secrets"}},
		"an ID beside URLs":    {urlOf(0), here, peers.Config{ID: "me"}, []string{"Config.ID", `"me"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := peers.NewPool(tc.self, tc.src, tc.cfg)
			refused(t, err, "peers: ", tc.words...)
		})
	}
}

func TestNewGroupNamesTheOptionThatIsWrong(t *testing.T) {
	m := newMesh(t, onefill.Config{MaxBytes: 1 << 20})
	load := func(context.Context, string) (string, error) { return "", nil }
	newGroup(t, m, "taken", load)
	for name, tc := range map[string]struct {
		group  string
		load   onefill.Loader[string]
		option []onefill.Option
		words  []string
	}{
		"empty name":             {"", load, nil, []string{`NewGroup("")`, "name"}},
		"long name":              {strings.Repeat("n", 1025), load, nil, []string{"name", "1025"}},
		"taken name":             {"taken", load, nil, []string{`"taken"`, "already"}},
		"no loader":              {"g", nil, nil, []string{"loader", "nil"}},
		"TTL 0":                  {"g", load, []onefill.Option{onefill.TTL(0)}, []string{"TTL(0s)"}},
		"TTL < 0":                {"g", load, []onefill.Option{onefill.TTL(-time.Second)}, []string{"TTL(-1s)"}},
		"TTL of ages":            {"g", load, []onefill.Option{onefill.TTL(math.MaxInt64)}, []string{"TTL(", "100 years"}},
		"HotTTL of ages":         {"g", load, []onefill.Option{onefill.HotTTL(math.MaxInt64)}, []string{"HotTTL("}},
		"NotFoundTTL < 0":        {"g", load, []onefill.Option{onefill.NotFoundTTL(-1)}, []string{"NotFoundTTL(-1ns)"}},
		"LoadTimeout 0":          {"g", load, []onefill.Option{onefill.LoadTimeout(0)}, []string{"LoadTimeout(0s)"}},
		"Jitter < 0":             {"g", load, []onefill.Option{onefill.Jitter(-0.1)}, []string{"Jitter(-0.1)"}},
		"Jitter > 1":             {"g", load, []onefill.Option{onefill.Jitter(1.1)}, []string{"Jitter(1.1)"}},
		"Jitter NaN":             {"g", load, []onefill.Option{onefill.Jitter(math.NaN())}, []string{"Jitter(NaN)"}},
		"StaleFor < 0":           {"g", load, []onefill.Option{onefill.StaleFor(-1)}, []string{"StaleFor(-1ns)"}},
		"SoftTimeout < 0":        {"g", load, []onefill.Option{onefill.SoftTimeout(-1)}, []string{"SoftTimeout(-1ns)"}},
		"Beta NaN":               {"g", load, []onefill.Option{onefill.Beta(math.NaN())}, []string{"Beta(NaN)"}},
		"MaxRefreshes < 0":       {"g", load, []onefill.Option{onefill.MaxRefreshes(-1)}, []string{"MaxRefreshes(-1)"}},
		"MaxLoads < 0":           {"g", load, []onefill.Option{onefill.MaxLoads(-1)}, []string{"MaxLoads(-1)"}},
		"MaxValueBytes 0":        {"g", load, []onefill.Option{onefill.MaxValueBytes(0)}, []string{"MaxValueBytes(0)"}},
		"MaxValueBytes > 2 GiB":  {"g", load, []onefill.Option{onefill.MaxValueBytes(1 << 31)}, []string{"MaxValueBytes(2147483648)"}},
		"MaxKeyBytes 0":          {"g", load, []onefill.Option{onefill.MaxKeyBytes(0)}, []string{"MaxKeyBytes(0)"}},
		"MaxKeyBytes > 1 MiB":    {"g", load, []onefill.Option{onefill.MaxKeyBytes(1<<20 + 1)}, []string{"MaxKeyBytes(1048577)"}},
		"MaxBytes < 0":           {"g", load, []onefill.Option{onefill.MaxBytes(-1)}, []string{"MaxBytes(-1)"}},
		"MaxBytes of the mesh":   {"g", load, []onefill.Option{onefill.MaxBytes(1 << 20)}, []string{"MaxBytes(1048576)"}},
		"long Version":           {"g", load, []onefill.Option{onefill.Version(strings.Repeat("v", 256))}, []string{"Version(", "255"}},
		"codec of another type":  {"g", load, []onefill.Option{onefill.WithCodec[[]byte](nopCodec{})}, []string{"WithCodec(onefill_test.nopCodec)", "string"}},
		"batch of another type":  {"g", load, []onefill.Option{onefill.LoadBatch(func(context.Context, []string) (map[string]int, error) { return nil, nil })}, []string{"LoadBatch(", "string"}},
		"no batch":               {"g", load, []onefill.Option{onefill.LoadBatch[string](nil)}, []string{"LoadBatch(nil)"}},
		"the first of two wrong": {"g", load, []onefill.Option{onefill.TTL(-1), onefill.MaxLoads(-1)}, []string{"TTL(-1ns)"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := onefill.NewGroup(m, tc.group, tc.load, tc.option...)
			refused(t, err, "onefill: NewGroup(", tc.words...)
		})
	}
	_, err := onefill.NewGroup(nil, "g", load)
	refused(t, err, "onefill: NewGroup(", "mesh", "nil")
	newGroup(t, m, "g", load, nil, onefill.HotTTL(-1), onefill.WithCodec[string](nil)) // none of these is wrong
}

type nopCodec struct{}

func (nopCodec) Encode(v []byte) ([]byte, error)    { return v, nil }
func (nopCodec) Decode(data []byte) ([]byte, error) { return data, nil }

func TestSetRefusesALifeOfNothing(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	g := newGroup(t, m, "users", func(context.Context, string) (string, error) { return "loaded", nil })
	for _, ttl := range []time.Duration{0, -time.Second} {
		refused(t, g.Set(t.Context(), "key", "set", onefill.SetTTL(ttl)), "onefill: ", "SetTTL("+ttl.String()+")")
	}
	if err := g.Set(t.Context(), "key", "set", onefill.SetTTL(math.MaxInt64)); err != nil {
		t.Error(err)
	}
	if v, ok := g.Peek("key"); v != "set" || !ok {
		t.Errorf("after a Set for ages: %q, %t", v, ok)
	}
}

// Contract: R4
func TestContextThatHasEndedBeforeIsAnErrorUnlessTheValueIsHere(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	src := &countingSource{}
	g := newGroup(t, m, "users", src.load)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := g.Get(ended, "key"); !errors.Is(err, context.Canceled) || src.total() != 0 {
		t.Errorf("%v, %d loads", err, src.total())
	}
	if _, err := g.Get(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	if v, err := g.Get(ended, "key"); v != "key/1" || err != nil {
		t.Errorf("a hit: %q, %v", v, err)
	}
}

// Contract: O4
func TestMemoryDefaultsToATenthOfTheLimit(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(100 << 20))
	m, err := onefill.New(onefill.Config{Namespace: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeMesh(t, m)
	if got := m.Stats().MaxBytes; got != 10<<20 {
		t.Errorf("MaxBytes is %d where GOMEMLIMIT is 100 MiB", got)
	}
}

func TestNilSetOptionDoesNothing(t *testing.T) {
	g := newGroup(t, newMesh(t, onefill.Config{}), "users", (&countingSource{}).load)
	if err := g.Set(t.Context(), "key", "value", nil); err != nil {
		t.Error(err)
	}
	if v, ok := g.Peek("key"); v != "value" || !ok {
		t.Errorf("%q, %t", v, ok)
	}
}
