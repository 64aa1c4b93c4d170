// Every setting of a mesh and of a group, its default and why. What a setting does stands where it is used.

package onefill

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// Config wires a mesh.
type Config struct {
	// Namespace separates services that share peers' addresses or a tier; processes of another namespace are refused. Required.
	Namespace string
	// Peers is the pool that this process belongs to, see package peers. Nil means a pool of one. A Peers serves one mesh.
	Peers Peers
	// Tier is the store that all clusters share, see package l2. Nil means that each pool fills for itself.
	Tier Tier
	// Observer is told of every trip, see package tracing. Nil means nobody is.
	Observer Observer
	// MaxBytes bounds the memory of all groups together, in bytes. Zero means a tenth of GOMEMLIMIT or of the cgroup's limit, whichever is less, or
	// 64 MiB where there is neither. Negative is an error.
	MaxBytes int64
	// Logger gets a line for each kind of background failure, at most once a second. Nil means slog.Default().
	Logger *slog.Logger
}

// The defaults of the options that have one. A number without unit is a count.
const (
	DefaultTTL           = 5 * time.Minute
	DefaultHotTTL        = 10 * time.Second
	DefaultLoadTimeout   = 5 * time.Minute
	DefaultJitter        = 0.1
	DefaultRetryAfter    = time.Second
	DefaultBeta          = 1.0
	DefaultPatience      = 5 * time.Second
	DefaultMaxRefreshes  = 16
	DefaultMaxValueBytes = 16 << 20
	DefaultMaxKeyBytes   = 4 << 10
)

// loadGrace is how long a loader may go on after its context was cancelled by LoadTimeout before everyone stops waiting for it.
const loadGrace = 5 * time.Second

// Option tunes a group. A wrong value is an error of NewGroup that names the option.
type Option func(*settings)

// settings are a group's options with their defaults filled in.
type settings struct {
	ttl, hotTTL, notFoundTTL, loadTimeout time.Duration
	staleFor, softTimeout, retryAfter     time.Duration
	jitter, beta                          float64
	maxRefreshes                          int
	maxLoads                              int
	maxValueBytes, maxKeyBytes            int64
	maxBytes                              int64
	version                               string
	cancelAbandoned, copies               bool
	patience                              time.Duration
	loadAnyway, noTier, noClaim           bool
	codec, loadBatch                      any
	baggage                               []string

	wrong error // the first option that is wrong
}

func newSettings(opts []Option) (*settings, error) {
	s := &settings{
		ttl: DefaultTTL, hotTTL: DefaultHotTTL, loadTimeout: DefaultLoadTimeout, jitter: DefaultJitter,
		patience: DefaultPatience, retryAfter: DefaultRetryAfter, beta: DefaultBeta, maxRefreshes: DefaultMaxRefreshes,
		maxValueBytes: DefaultMaxValueBytes, maxKeyBytes: DefaultMaxKeyBytes,
	}
	for _, o := range opts {
		if o != nil {
			o(s)
		}
	}
	return s, s.wrong
}

// require notes an option that is wrong; the first one counts.
func (s *settings) require(ok bool, option string, value any, want string) {
	if !ok && s.wrong == nil {
		s.wrong = fmt.Errorf("%s(%v): want %s", option, value, want)
	}
}

// maxDuration bounds every duration: a hundred years, so that sums do not overflow.
const maxDuration = 100 * 365 * 24 * time.Hour

func (s *settings) requirePositive(option string, d time.Duration) {
	s.require(d > 0 && d <= maxDuration, option, d, "a duration above 0 and of at most 100 years")
}

// TTL is how long a value is fresh, 5 minutes by default, if its loader does not say otherwise with Fill.SetTTL. It must be above zero.
func TTL(d time.Duration) Option {
	return func(s *settings) { s.requirePositive("TTL", d); s.ttl = d }
}

// HotTTL bounds how long a process keeps a copy of a value whose key it does not own: 10 seconds by default, never longer than the value is fresh. Zero or
// negative means that it keeps none.
func HotTTL(d time.Duration) Option {
	return func(s *settings) {
		s.require(d <= maxDuration, "HotTTL", d, "at most 100 years")
		s.hotTTL = max(d, 0)
	}
}

// NotFoundTTL is how long "not found" is remembered, apart from values. Zero, the default, means not at all; negative is an error.
func NotFoundTTL(d time.Duration) Option {
	return func(s *settings) {
		s.require(d >= 0 && d <= maxDuration, "NotFoundTTL", d, "0 or more, at most 100 years")
		s.notFoundTTL = d
	}
}

// LoadTimeout is after what time a load's context is cancelled, 5 minutes by default. A loader that does not return within 5 seconds more is given up: its
// waiters get ErrLoadTimeout and its late value is dropped. It must be above zero.
func LoadTimeout(d time.Duration) Option {
	return func(s *settings) { s.requirePositive("LoadTimeout", d); s.loadTimeout = d }
}

// StaleFor is how long after its end a value is still served, at once, while it is loaded again in the background, or while loading it fails. Zero, the
// default, means not at all; negative is an error.
func StaleFor(d time.Duration) Option {
	return func(s *settings) {
		s.require(d >= 0 && d <= maxDuration, "StaleFor", d, "0 or more, at most 100 years")
		s.staleFor = d
	}
}

// SoftTimeout is how long a read waits for a load before it takes the stale value that there is; the load goes on and is kept. Zero, the default, means that
// it does not wait; negative is an error. It has no effect without StaleFor.
func SoftTimeout(d time.Duration) Option {
	return func(s *settings) {
		s.require(d >= 0 && d <= maxDuration, "SoftTimeout", d, "0 or more, at most 100 years")
		s.softTimeout = d
	}
}

// RetryAfter is how long after a failed refresh a key with a value to fall back to is not tried again: 1 second by default, doubling with each further failure
// up to 30 seconds. It must be above zero.
func RetryAfter(d time.Duration) Option {
	return func(s *settings) { s.requirePositive("RetryAfter", d); s.retryAfter = d }
}

// Beta says how eagerly values are refreshed before they end, so that nobody waits: 1 by default, more is earlier. Negative switches early refresh off; NaN
// or more than 100 is an error.
func Beta(b float64) Option {
	return func(s *settings) { s.require(b <= 100, "Beta", b, "at most 100"); s.beta = b } // false for NaN, too
}

// MaxRefreshes bounds how many refreshes of the group run in the background at once: 16 by default. Zero means none; negative is an error.
func MaxRefreshes(n int) Option {
	return func(s *settings) { s.require(n >= 0, "MaxRefreshes", n, "0 or more"); s.maxRefreshes = n }
}

// Jitter spreads lives so that keys filled together do not expire together: each life is longer by a random part of up to this fraction of itself, 0.1 by
// default. Zero means no spread; below zero, above 1 or NaN is an error.
func Jitter(fraction float64) Option {
	return func(s *settings) {
		s.require(fraction >= 0 && fraction <= 1, "Jitter", fraction, "a fraction from 0 to 1") // false for NaN, too
		s.jitter = fraction
	}
}

// MaxLoads bounds how many loads of the group run at once in this process. Zero, the default, means no bound; negative is an error. A load that waits in a
// Get of its own does not count meanwhile.
func MaxLoads(n int) Option {
	return func(s *settings) { s.require(n >= 0, "MaxLoads", n, "0 or more"); s.maxLoads = n }
}

// MaxValueBytes is the size, encoded, above which a value is returned but not kept: 16 MiB by default. It must be above zero.
func MaxValueBytes(n int64) Option {
	return func(s *settings) {
		s.require(n > 0 && n <= math.MaxInt32, "MaxValueBytes", n, "1 to 2147483647")
		s.maxValueBytes = n
	}
}

// MaxKeyBytes is the length above which a key is refused with ErrKeyTooLong: 4 KiB by default. It must be above zero and at most 1 MiB.
func MaxKeyBytes(n int64) Option {
	return func(s *settings) {
		s.require(n > 0 && n <= 1<<20, "MaxKeyBytes", n, "1 to 1048576")
		s.maxKeyBytes = n
	}
}

// MaxBytes gives the group memory of its own, in bytes, taken from the mesh's: it uses no more, and no other group uses it. Zero, the default, means a
// common memory with the other groups; negative, or more than the mesh has left, is an error.
func MaxBytes(n int64) Option {
	return func(s *settings) { s.require(n >= 0, "MaxBytes", n, "0 or more"); s.maxBytes = n }
}

// Version names the type of the group's values. A process with another version of the group neither gives nor takes values of this one, so that a rolling
// deploy can change the type. Empty by default.
func Version(v string) Option {
	return func(s *settings) {
		s.require(len(v) <= 255, "Version", v, "at most 255 bytes")
		s.version = v
	}
}

// CancelAbandoned cancels a load's context when all who waited for it have left. By default the load goes on and its value is kept, so that a retry after a
// timeout finds it.
func CancelAbandoned() Option { return func(s *settings) { s.cancelAbandoned = true } }

// Copy gives each caller a value of its own, decoded anew for each Get. By default callers share one value, which they must not modify.
func Copy() Option { return func(s *settings) { s.copies = true } }

// Patience is how long a fill waits for another cluster's load before a stale value in the tier serves, if there is one, or LoadAnyway applies: 5 seconds by
// default. It must be above zero. Without either it goes on waiting for as long as the other holds its claim.
func Patience(d time.Duration) Option {
	return func(s *settings) { s.requirePositive("Patience", d); s.patience = d }
}

// LoadAnyway makes a fill that has waited for Patience load beside the other cluster's living holder. The value is for those who wait here, and stays in this
// pool. By default nothing ever loads beside a living holder.
func LoadAnyway() Option { return func(s *settings) { s.loadAnyway = true } }

// NoTier keeps the group out of the tier: each pool loads for itself. For loads that are cheaper than a trip.
func NoTier() Option { return func(s *settings) { s.noTier = true } }

// NoClaim shares the group's values through the tier without claims: clusters may load a key at the same time, and none waits for another.
func NoClaim() Option { return func(s *settings) { s.noClaim = true } }

// Codec turns values into bytes and back. Decode must accept what any process of the group encodes, must not keep or modify its argument, and both must be
// safe for concurrent use.
type Codec[V any] interface {
	Encode(V) ([]byte, error)
	Decode([]byte) (V, error)
}

// WithCodec replaces the group's codec. The default takes []byte and string as they are, then protocol buffers, then encoding.BinaryMarshaler, else JSON.
func WithCodec[V any](c Codec[V]) Option { return func(s *settings) { s.codec = c } }

// LoadBatch gives the group a loader of many keys at once, which GetMulti and peers' gathered requests use. A key that is absent from its map is not found.
// An error counts for those keys that the map lacks.
func LoadBatch[V any](load func(ctx context.Context, keys []string) (map[string]V, error)) Option {
	return func(s *settings) { s.loadBatch = load }
}

// Baggage declares which baggage members of the observer's propagator travel to the process that loads. None by default.
func Baggage(keys ...string) Option {
	return func(s *settings) { s.baggage = append(s.baggage, keys...) }
}

// memoryBudget is the default of Config.MaxBytes.
func memoryBudget() int64 {
	limit := int64(math.MaxInt64)
	if n := debug.SetMemoryLimit(-1); n > 0 {
		limit = min(limit, n)
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} { // cgroup v2, v1; on Linux only
		if text, err := os.ReadFile(file); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
	}
	if limit >= 1<<50 { // "no limit" is spelled as a very large number
		return 64 << 20
	}
	return max(limit/10, 1<<20)
}
