// How the tier calls its keys and channels in Redis.

package l2

import (
	"encoding/binary"
	"encoding/hex"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/onefill/onefill"
)

// names are the keys of one entry. They share a slot of a Cluster: the hash tag comes first and is hex, so that braces in group and key do no harm, and what
// follows is for people who look at Redis.
type names struct {
	value   string // the value
	claim   string // who fills: token, fence, whether anyone waits, flights; also the channel on which those who wait are woken
	fence   string // the last fence
	outcome string // for a second: how a load ended that left no value
}

// namespace is a namespace as it stands in key names: with percent signs and braces escaped, since braces would be taken for the hash tag.
func namespace(name string) string {
	return strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(name)
}

// nameOf returns the names for k in a namespace that was escaped.
func nameOf(space string, k onefill.TierKey) names {
	tag := tagOf(k)
	n := len(space) + len(":{") + len(tag) + len("}:v:") + len(k.Group) + len(":") + len(k.Key)
	b := make([]byte, 0, 4*n) // one piece of memory for all four
	for _, kind := range [...]byte{'v', 'l', 'f', 'e'} {
		b = append(append(append(b, space...), ":{"...), tag[:]...)
		b = append(append(b, '}', ':', kind, ':'), k.Group...)
		b = append(append(b, ':'), k.Key...)
	}
	all := string(b)
	return names{all[:n], all[n : 2*n], all[2*n : 3*n], all[3*n:]}
}

// tagOf is the hex of the 64-bit xxHash of the entry's length-prefixed group, version and key.
func tagOf(k onefill.TierKey) (tag [16]byte) {
	var d xxhash.Digest
	d.Reset()
	digest(&d, k.Group)
	digest(&d, k.Version)
	digest(&d, k.Key)
	var sum [8]byte
	binary.BigEndian.PutUint64(sum[:], d.Sum64())
	hex.Encode(tag[:], sum[:])
	return tag
}

// digest adds a length-prefixed string. The length is eight bytes, big end first.
func digest(d *xxhash.Digest, s string) {
	var length [8]byte
	binary.BigEndian.PutUint64(length[:], uint64(len(s)))
	_, _ = d.Write(length[:]) // never fails
	_, _ = d.WriteString(s)
}

// channelOf is where clusters of a namespace tell each other what happened.
func channelOf(space string) string { return space + ":m" }

// probeOf is a key that is written to find out whether Redis can be written to.
func probeOf(space string) string { return space + ":probe" }

// all returns the names in the order that the scripts want.
func (n names) all() []string { return []string{n.value, n.claim, n.fence, n.outcome} }
