// This file gives each name its keys. What stands under them is the scripts'.

package lock

import (
	"fmt"
	"hash/fnv"
	"strconv"
)

// kind says what a name is used as. Equal names of different kinds have nothing to do with each other.
type kind string

const (
	kindMutex     kind = "mutex"
	kindRW        kind = "rw"
	kindSemaphore kind = "semaphore"
	kindOnce      kind = "once"
	kindThrottle  kind = "throttle"
	kindAverage   kind = "average"
)

// buckets is how many fence counters there are. Names share them, so that a million names leave 4096 small keys behind and not a million; that a fence also
// rises with those of other names does no harm.
const buckets = 4096

// room is one name of one kind, and where its keys are: all in one slot of a Cluster, by the bucket in braces.
type room struct {
	kind   kind
	name   string
	head   string // up to the kind: lock:{3fa}:mutex:
	bucket int
}

func newRoom(prefix string, k kind, name string) room {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	bucket := int(h.Sum32() % buckets)
	return room{kind: k, name: name, bucket: bucket, head: prefix + ":{" + strconv.FormatInt(int64(bucket), 16) + "}:" + string(k) + ":"}
}

// checkName returns an error that names what is wrong with a lock's name.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%w: name of %d bytes: want 1 to %d", ErrInvalid, len(name), maxName)
	}
	return nil
}

// id tells rooms apart inside the process.
func (r room) id() string { return r.head + r.name }

func (r room) holder() string  { return r.head + "holder:" + r.name }  // a string: the token of who holds it alone
func (r room) sharers() string { return r.head + "sharers:" + r.name } // a sorted set: tokens by the end of their leases, in µs of the server's clock
func (r room) waiters() string { return r.head + "waiters:" + r.name } // exists when someone waits to be woken
func (r room) intent() string  { return r.head + "intent:" + r.name }  // a string: the token of a writer that waits
func (r room) upgrade() string { return r.head + "upgrade:" + r.name } // a string: the token of a reader that waits to become the writer
func (r room) done() string    { return r.head + "done:" + r.name }    // exists while a Once has succeeded within its window
func (r room) value() string   { return r.head + "value:" + r.name }   // a hash: a Throttle's bucket, an Average's count and total
func (r room) wake() string    { return r.head + "wake:" + r.name }    // the channel on which waiters are woken

// fence is the counter that the bucket's names share, across kinds.
func (r room) fence() string { return r.head[:len(r.head)-len(r.kind)-1] + "fence" }
