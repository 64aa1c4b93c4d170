// How values become bytes and come back, here and in other processes, and who shares them.

package onefill_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onefill/onefill"
)

// binaryPoint has encoding's binary interfaces on its pointer.
type binaryPoint struct{ X, Y uint32 }

func (p *binaryPoint) MarshalBinary() ([]byte, error) {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, p.X), p.Y), nil
}

func (p *binaryPoint) UnmarshalBinary(data []byte) error {
	if len(data) != 8 {
		return errors.New("want 8 bytes")
	}
	p.X, p.Y = binary.BigEndian.Uint32(data), binary.BigEndian.Uint32(data[4:])
	return nil
}

type (
	namedBytes  []byte
	namedString string
	tree        struct {
		Left, Right *tree
		Names       map[string][]int
		Any         any
	}
)

// Contract: R8, R12
func TestEveryKindOfValueComesBackAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		comesBack(t, all, "[]byte", []byte("a\x00b"))
		comesBack(t, all, "string", "a\xffb")
		comesBack(t, all, "named bytes", namedBytes("a\x00b"))
		comesBack(t, all, "named string", namedString("ü"))
		comesBack(t, all, "int", int64(math.MinInt64))
		comesBack(t, all, "struct", user{"a", []string{"b"}})
		comesBack(t, all, "pointer", &user{Name: "a"})
		comesBack(t, all, "nil pointer", (*user)(nil))
		comesBack(t, all, "slice", []user{{Name: "a"}, {}})
		comesBack(t, all, "tree", &tree{Left: &tree{}, Names: map[string][]int{"a": {1}}, Any: "x"})
		comesBack(t, all, "time", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
		comesBack(t, all, "binary", binaryPoint{1, 2})
		comesBack(t, all, "binary pointer", &binaryPoint{1, 2})
		comesBack(t, all, "nil binary pointer", (*binaryPoint)(nil))
		comesBack(t, all, "proto", wrapperspb.String("a"))
		comesBack(t, all, "empty proto", wrapperspb.String(""))
		comesBack(t, all, "nil proto", (*wrapperspb.StringValue)(nil))
	})
}

// comesBack loads want in one process, reads it in both, with and without Copy.
func comesBack[V any](t *testing.T, all []*process, name string, want V) {
	t.Helper()
	for suffix, options := range map[string][]onefill.Option{"": nil, " copied": {onefill.Copy()}} {
		loads := 0
		groups := inAll(t, all, name+suffix, func(context.Context, string) (V, error) { loads++; return want, nil }, options...)
		for i := range 4 { // misses, then hits
			got, err := groups[i%2].Get(t.Context(), "key")
			equal := reflect.DeepEqual(got, want)
			if m, ok := any(want).(proto.Message); ok {
				equal = proto.Equal(any(got).(proto.Message), m)
			}
			if !equal || err != nil {
				t.Errorf("%s, read %d: %+v, %v", name+suffix, i, got, err)
			}
		}
		if loads != 1 {
			t.Errorf("%s: %d loads", name+suffix, loads)
		}
	}
}

// hidden has a field that its codec leaves out.
type hidden struct {
	Name   string
	secret string
}

// Contract: R12
func TestLoadingProcessSeesWhatTheOthersSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		groups := inAll(t, all, "users", func(context.Context, string) (*hidden, error) { return &hidden{"a", "b"}, nil })
		for i, g := range groups {
			if v, err := g.Get(t.Context(), keyOf(all[0], "users")); err != nil || *v != (hidden{Name: "a"}) {
				t.Errorf("process %d: %+v, %v", i, v, err)
			}
		}
	})
}

// Contract: R12
func TestJoinersShareTheStartersValueAndWithCopyEachHasItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		load := func(context.Context, string) (*user, error) { time.Sleep(slow); return &user{Tags: []string{"a"}}, nil }
		bytes := func(context.Context, string) ([]byte, error) { return []byte("abc"), nil }
		for name, options := range map[string][]onefill.Option{"shared": nil, "copied": {onefill.Copy()}} {
			g := newGroup(t, m, name, load, options...)
			values := make([]*user, 10)
			together(len(values), func(i int) (string, error) {
				if i >= 8 {
					time.Sleep(2 * slow) // hits
				}
				v, err := g.Get(t.Context(), "key")
				values[i] = v
				return "", err
			})
			different := len(slices.Compact(slices.Clone(values)))
			if want := map[string]int{"shared": 1, "copied": 10}[name]; different != want {
				t.Errorf("%s: ten callers have %d different values", name, different)
			}
			if name == "shared" {
				continue
			}
			values[0].Tags[0] = "changed"
			if v, err := g.Get(t.Context(), "key"); err != nil || v.Tags[0] != "a" {
				t.Errorf("one caller's change reached another: %+v, %v", v, err)
			}
			plain := newGroup(t, m, "bytes", bytes, options...)
			for range 3 {
				v, err := plain.Get(t.Context(), "key")
				if string(v) != "abc" || err != nil {
					t.Errorf("one caller's change reached another: %q, %v", v, err)
				}
				v[0] = 'x'
			}
		}
	})
}

// Appending to what Get returned is no modification of it, and must reach nobody.
//
// Contract: R12
func TestAppendingToAValueReachesNobody(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	g := newGroup(t, m, "bytes", func(context.Context, string) ([]byte, error) { return make([]byte, 3, 100), nil })
	first, err := g.Get(t.Context(), "key")
	if err != nil || cap(first) != len(first) {
		t.Errorf("there is room behind the value: %d of %d bytes, %v", len(first), cap(first), err)
	}
}
