// How a value becomes an entry of the cache and how an entry becomes an answer: its bytes, its decoded twin, its life, its number.

package onefill

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/onefill/onefill/internal/cache"
)

// entry is a value of a key as this process keeps it.
type entry = cache.Entry

// What an entry can be beside a plain value.
const (
	notFoundEntry    = 1 << iota // the source has no value
	hotEntry                     // a copy of another process's value
	unencodableEntry             // has no bytes: for callers in the loading process only
	finalEntry                   // for those who wait, not to be kept
	cappedEntry                  // a copy that stays for HotTTL, less long than the value is fresh
)

// made returns the entry for a value that a loader has just made. It goes through the codec, so that this process sees what the others see. With the error
// comes an entry for callers in this process alone.
func (g *core) made(key string, value any, said said, number uint64, took time.Duration, trace string) (*entry, error) {
	e := g.newEntry(key, number, took, said.tags, trace)
	data, err := g.codec.encode(value)
	if err == nil {
		err = g.dress(e, data)
	}
	if err != nil {
		g.mesh.log.Error("a value cannot be encoded", groupAttr(g.name), errAttr(err))
		g.stats.encodeErrors.Add(1)
		e.Value, e.Flags = value, unencodableEntry|finalEntry
		return e, &EncodeError{Group: g.name, Err: err}
	}
	g.wish(e, said, g.set.ttl)
	return e, nil
}

// madeNotFound returns the entry that remembers that the source has no value.
func (g *core) madeNotFound(key string, said said, number uint64, took time.Duration, trace string) *entry {
	e := g.newEntry(key, number, took, said.tags, trace)
	e.Flags = notFoundEntry
	g.wish(e, said, g.set.notFoundTTL)
	return e
}

// wish gives an entry the life that its loader asked for, or else the group's.
func (g *core) wish(e *entry, said said, life time.Duration) {
	if said.ttlSet {
		life = said.ttl
	}
	if said.doNotStore || life <= 0 {
		e.Flags |= finalEntry
	}
	g.born(e, g.spread(max(life, 0)))
}

// received returns the entry for a peer's answer.
func (g *core) received(key string, a *Answer) (*entry, error) {
	e := g.newEntry(key, a.Number, a.Delta, a.Tags, a.Trace)
	e.Flags = hotEntry
	life, capped := g.stay(a.Life, time.Duration(e.Delta)*time.Microsecond)
	if capped {
		e.Flags |= cappedEntry
	}
	if a.Final || life <= 0 {
		e.Flags |= finalEntry
	}
	g.live(e, life)
	if a.Status == StatusNotFound {
		e.Flags |= notFoundEntry
		return e, nil
	}
	return e, g.dress(e, a.Data)
}

func (g *core) newEntry(key string, number uint64, took time.Duration, tags []string, trace string) *entry {
	e := &entry{Key: key, Group: g.account, Number: number}
	e.Delta = microseconds(took)
	if len(tags) > 0 || trace != "" {
		e.More = &cache.More{Tags: tags, Trace: trace}
	}
	return e
}

// dress gives the entry its bytes and, where hits need one, their decoded twin.
func (g *core) dress(e *entry, data string) error {
	e.Data = data
	if g.codec.plain {
		return nil
	}
	value, size, err := g.codec.decode(data)
	if g.set.copies { // each Get decodes its own; this one showed that it can be done
		return err
	}
	e.Value, e.Twin = value, size
	return err
}

// spread lengthens a life at random by up to Jitter of itself; it never shortens it.
func (g *core) spread(life time.Duration) time.Duration {
	return life + time.Duration(rand.Float64()*g.set.jitter*float64(life))
}

// answer returns what a peer is told about an entry. vouched is the highest invalidation number that this process had applied to the key at a moment when it
// held the entry.
func (g *core) answer(e *entry, vouched uint64) *Answer {
	a := &Answer{Status: StatusValue, Data: e.Data, Number: e.Number, Vouched: vouched, Delta: time.Duration(e.Delta) * time.Microsecond, Final: e.Flags&finalEntry != 0}
	a.Life = max(0, time.Duration(g.expires(e)-g.clock.Exact()))
	if e.More != nil {
		a.Tags, a.Trace = e.More.Tags, e.More.Trace
	}
	switch {
	case e.Flags&notFoundEntry != 0:
		a.Status = StatusNotFound
	case e.Flags&unencodableEntry != 0:
		a = &Answer{Status: StatusEncode, Text: "the codec refused the value"}
	}
	return a
}

// keep stores an entry in this process's memory unless its loader or its size forbids it, or something has invalidated it meanwhile. What is older goes in any
// case.
func (g *core) keep(e *entry, vouched uint64) {
	switch {
	case e.Flags&finalEntry != 0, !g.mesh.listed():
		g.supersede(e)
	case int64(len(e.Data)) > g.set.maxValueBytes, cache.Size(e) > g.cache.Share():
		g.stats.tooLarge.Add(1)
		g.supersede(e)
	default:
		g.retries.succeeded(e.Key)
		g.cache.Store(g.cache.Hash(g.account, e.Key), e, vouched)
		if g.stats.closed.Load() || !g.mesh.listed() { // meanwhile
			g.cache.Remove(e)
		}
	}
}

// supersede drops what is older than an entry that is not kept.
func (g *core) supersede(e *entry) {
	if old := g.cache.Peek(g.cache.Hash(g.account, e.Key), g.account, e.Key); old != nil && old.Number < e.Number {
		g.cache.Remove(old)
	}
}

// microseconds is a load's duration as an entry keeps it: at most 71 minutes.
func microseconds(d time.Duration) uint32 { return uint32(min(d.Microseconds(), math.MaxUint32)) }
