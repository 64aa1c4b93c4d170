// Package report logs what fails in the background, at most once a second for each kind, with the number of times it happened since the last line.
package report

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Log is a slog.Logger that does not flood. It is safe for concurrent use; a nil Log logs nothing.
type Log struct {
	out *slog.Logger

	mu    sync.Mutex // guards kinds
	kinds map[string]*kind
}

type kind struct {
	last    time.Time
	skipped int64
	total   uint64
}

// every is the least time between two lines of one kind.
const every = time.Second

// New returns a Log that writes to out, or to slog.Default() where out is nil.
func New(out *slog.Logger) *Log {
	if out == nil {
		out = slog.Default()
	}
	return &Log{out: out, kinds: make(map[string]*kind)}
}

// Warn logs a failure that callers do not see. kind is a short constant text and becomes the line's message.
func (l *Log) Warn(kind string, attrs ...slog.Attr) { l.log(slog.LevelWarn, kind, attrs) }

// Error logs a failure that someone has to repair: a wrong configuration, say.
func (l *Log) Error(kind string, attrs ...slog.Attr) { l.log(slog.LevelError, kind, attrs) }

func (l *Log) log(level slog.Level, name string, attrs []slog.Attr) {
	if l == nil {
		return
	}
	now := time.Now()
	l.mu.Lock()
	k := l.kinds[name]
	if k == nil {
		k = &kind{}
		l.kinds[name] = k
	}
	k.total++
	if !k.last.IsZero() && now.Sub(k.last) < every {
		k.skipped++
		l.mu.Unlock()
		return
	}
	skipped := k.skipped
	k.last, k.skipped = now, 0
	l.mu.Unlock()
	if skipped > 0 {
		attrs = append(attrs, slog.Int64("skipped", skipped))
	}
	l.out.LogAttrs(context.Background(), level, "onefill: "+name, attrs...)
}

// Totals returns how often each kind has happened.
func (l *Log) Totals() map[string]uint64 {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string]uint64, len(l.kinds))
	for name, k := range l.kinds {
		out[name] = k.total
	}
	return out
}
