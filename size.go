// How much memory a decoded value takes, as far as reflection can see.

package onefill

import (
	"math"
	"reflect"
	"time"
)

// sizeOf returns the bytes behind v: v itself and all that it points to, each pointer counted once. It is an estimate: capacity beyond a slice's length,
// channels, functions and what maps need beyond their keys and values (taken as half as much again) are not looked at.
func sizeOf(v reflect.Value) uint32 {
	s := sizer{seen: make(map[uintptr]bool)}
	return uint32(min(int64(v.Type().Size())+s.behind(v, 0), math.MaxUint32))
}

type sizer struct{ seen map[uintptr]bool }

// maxDepth stops at values that are nested absurdly deep; a stack overflow cannot be recovered from.
const maxDepth = 1000

// behind returns the bytes that v refers to outside itself.
func (s *sizer) behind(v reflect.Value, depth int) (n int64) {
	if depth > maxDepth {
		return 0
	}
	if v.Type() == reflect.TypeFor[time.Time]() { // its *Location is everybody's
		return 0
	}
	switch v.Kind() {
	case reflect.String:
		return int64(v.Len())
	case reflect.Slice:
		if v.IsNil() || s.again(v.Pointer()) {
			return 0
		}
		n = int64(v.Len()) * int64(v.Type().Elem().Size())
		fallthrough
	case reflect.Array:
		if flat(v.Type().Elem().Kind()) {
			return n
		}
		for i := range v.Len() {
			n += s.behind(v.Index(i), depth+1)
		}
	case reflect.Pointer:
		if v.IsNil() || s.again(v.Pointer()) {
			return 0
		}
		n = int64(v.Type().Elem().Size()) + s.behind(v.Elem(), depth+1)
	case reflect.Interface:
		if !v.IsNil() {
			n = int64(v.Elem().Type().Size()) + s.behind(v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			n += s.behind(v.Field(i), depth+1)
		}
	case reflect.Map:
		if v.IsNil() || s.again(v.Pointer()) {
			return 0
		}
		n = int64(v.Len()) * int64(v.Type().Key().Size()+v.Type().Elem().Size()) * 3 / 2
		for iter := v.MapRange(); iter.Next(); {
			n += s.behind(iter.Key(), depth+1) + s.behind(iter.Value(), depth+1)
		}
	}
	return n
}

func (s *sizer) again(p uintptr) bool {
	if s.seen[p] {
		return true
	}
	s.seen[p] = true
	return false
}

// flat reports whether values of kind k refer to nothing outside themselves.
func flat(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }
