// What the read path needs of a pool of processes, and the words that travel between them: Ask, Answer, Invalidation. Package peers implements Peers over
// HTTP; how the words look on the wire is internal/wire's business.

package onefill

import (
	"context"
	"time"
)

// Peers is the pool of processes that a mesh belongs to. Package peers has the one that speaks HTTP. A Peers serves one mesh; its methods are safe for
// concurrent use.
type Peers interface {
	// Join attaches the mesh that answers what peers ask. New calls it once; an error fails New.
	Join(Member) error
	// Self is the ID of this process.
	Self() string
	// Route says whom to ask for a key: its owner, then its deputy, as far as they are other processes that are believed alive. An empty route means
	// that this process fills the key itself.
	Route(group, key string) Route
	// Listed reports whether the others know this process as a member, so that invalidations reach it. One that they do not know keeps nothing.
	Listed() bool
	// Spread hands an invalidation to every process of the pool except this one and returns their answers: one for each member, whether reached or not.
	Spread(context.Context, *Invalidation) []Ack
	// Ready waits until the first set of members is known.
	Ready(context.Context) error
	// Leave stops owning keys and tells the pool; it goes on answering what is under way.
	Leave(context.Context) error
	// Close ends the requests in flight, within the context, and stops serving. It includes Leave.
	Close(context.Context) error
	// States returns what this process believes of each member, itself included.
	States() []PeerState
}

// Route lists the other processes to ask for a key, best first; what follows the first nil is this process itself.
type Route [2]Peer

// Peer is one other process.
type Peer interface {
	ID() string
	// Fetch asks the peer for values and calls reply once for each ask, from any goroutine: with the peer's answer, or with an error where the peer could
	// not be reached or is no longer alive. It returns when all asks are answered, within PeerSilence if the peer is silent, and at once when ctx
	// ends; then the peer is told that nobody waits.
	Fetch(ctx context.Context, asks []*Ask, reply func(i int, a *Answer, err error))
}

// PeerState is what a process believes of a member of its pool.
type PeerState struct {
	ID, URL string
	Self    bool
	State   string // "alive", "unreachable", "left", "misconfigured"
}

// Member is a mesh as its pool sees it: the side that answers peers.
type Member interface {
	Namespace() string
	// Serve answers what a peer asks, from memory or by filling; it never asks a third process. It calls reply once for each ask, at once for what is
	// in memory. waits is called when what the fill of an ask waits for changes. The function that it returns says that the peer no longer waits
	// for ask i.
	Serve(from string, asks []*Ask, reply func(i int, a *Answer), waits func(i int, flights []uint64)) (leave func(i int))
	// Forget drops everything that is kept: invalidations do not reach this process any more.
	Forget()
	// Apply applies an invalidation that a peer spreads.
	Apply(*Invalidation) Ack
	// Clock is the highest number that this process has seen; Merge raises it.
	Clock() uint64
	Merge(uint64)
}

// Ask is a question for one key.
type Ask struct {
	Group   string
	Version string // of the group, see the Version option
	Key     string
	Floor   uint64   // the highest invalidation number that the asker has applied to the key
	Have    uint64   // the number of the value that the asker has and does not want again, 0 for none
	Chain   []uint64 // digests of the keys that are being filled by the chain of loaders that asks
	Trace   string   // W3C traceparent of the asking trip
	Baggage []string // declared baggage: name, value, name, value, …

	// Waits, where set, is told the flights that the peer's fill waits for, whenever they change.
	Waits interface{ SetRemote(flights []uint64) }
}

// Status says what kind of Answer an Answer is.
type Status uint8

// The answers that a peer gives. Only StatusValue and StatusNotFound speak about the key's value; UnknownGroup, OtherVersion and Busy are reasons to go on to
// the next process, or to come back.
const (
	StatusValue Status = iota + 1
	StatusNotFound
	StatusError        // the loader's error, as text
	StatusPanic        // the loader panicked: text and stack
	StatusEncode       // the value cannot be encoded
	StatusRecursion    // ErrRecursion
	StatusLoadTimeout  // ErrLoadTimeout
	StatusKeyTooLong   // ErrKeyTooLong
	StatusUnknownGroup // the peer has no such group
	StatusOtherVersion // the peer's group has another Version
	StatusBusy         // the peer has no room
	StatusClosed       // the peer is leaving
)

// Answer is what a peer says about one Ask.
type Answer struct {
	Status  Status
	Data    string        // the encoded value; must not be modified
	Life    time.Duration // how long the value remains fresh
	Delta   time.Duration // how long its load took
	Number  uint64        // the value's number
	Vouched uint64        // the highest invalidation number that the answering process had applied to the key when it held the value
	Tags    []string
	Trace   string // traceparent of the load that made the value
	Text    string // of an error
	Stack   string // of a panic
	Final   bool   // the value is for this ask alone: not to be kept
}

// Invalidation says that values of some keys with numbers up to Number are old. With Value it also brings the value that follows them.
type Invalidation struct {
	Group   string
	Version string
	Number  uint64
	Keys    []string
	Value   *Answer // for Set: the value of the only key
	Trace   string
}

// Ack is a process's answer to an Invalidation.
type Ack struct {
	Peer    string
	Highest uint64 // the highest number that the process has for any of the keys
	Members uint64 // a hash of the member set that it knows
	Err     error  // where it could not be reached
}
