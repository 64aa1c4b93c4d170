// How a group's values become bytes and come back. Which codec a type gets is decided once, in codecOf; the core knows only untyped functions.

package onefill

import (
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/onefill/onefill/internal/protobytes"
)

// codec is a group's codec without its type.
type codec struct {
	encode func(value any) (data string, err error)
	// decode returns the value and the bytes of memory that it takes.
	decode func(data string) (value any, size uint32, err error)
	plain  bool // a value is its bytes: hits need no decoded twin
}

// codecOf returns the codec for V and the function that turns an entry into a V.
func codecOf[V any](set *settings) (codec, func(*entry) (V, error), error) {
	if typed, ok := plainValue[V](set); ok && set.codec == nil {
		c := plainCodec
		if set.copies {
			c.encode = func(value any) (string, error) {
				data, err := plainCodec.encode(value)
				return strings.Clone(data), err
			}
		}
		return c, typed, nil
	}
	custom, ok := set.codec.(Codec[V])
	switch {
	case set.codec != nil && !ok:
		return codec{}, nil, fmt.Errorf("WithCodec(%T): it is no codec for %s", set.codec, reflect.TypeFor[V]())
	case !ok:
		custom = defaultCodec[V]()
	}
	custom = careful(custom)
	c := codec{
		encode: func(value any) (string, error) {
			v, _ := value.(V) // only a nil interface fails, whose V is nil, too
			data, err := custom.Encode(v)
			if set.codec != nil { // a codec of the user's may use its buffer again
				return string(data), err
			}
			return asString(data), err
		},
		decode: func(data string) (any, uint32, error) {
			v, err := custom.Decode(asBytes(data))
			return v, sizeOf(reflect.ValueOf(&v).Elem()), err
		},
	}
	if set.copies {
		return c, func(e *entry) (V, error) {
			if e.Flags&unencodableEntry == 0 {
				return custom.Decode(asBytes(e.Data))
			}
			v, _ := e.Value.(V)
			return v, nil
		}, nil
	}
	return c, func(e *entry) (V, error) {
		v, _ := e.Value.(V)
		return v, nil
	}, nil
}

// plainCodec serves []byte and string.
var plainCodec = codec{
	plain: true,
	encode: func(value any) (string, error) {
		if b, ok := value.([]byte); ok {
			return asString(b), nil // without Copy, whoever loads or sets a []byte gives it away
		}
		return value.(string), nil
	},
}

// plainValue returns the function that takes a []byte or a string from an entry, if V is one of them.
func plainValue[V any](set *settings) (func(*entry) (V, error), bool) {
	var typed any = func(e *entry) (string, error) { return e.Data, nil }
	if set.copies {
		if f, ok := any(func(e *entry) ([]byte, error) { return append([]byte{}, e.Data...), nil }).(func(*entry) (V, error)); ok {
			return f, true
		}
	}
	if f, ok := any(func(e *entry) ([]byte, error) { return asBytes(e.Data), nil }).(func(*entry) (V, error)); ok {
		return f, true
	}
	f, ok := typed.(func(*entry) (V, error))
	return f, ok
}

// asString and asBytes share memory: cached bytes are never written, which the documentation asks of callers as well.
func asString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func asBytes(s string) []byte {
	if s == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// funcCodec is a Codec made of two functions.
type funcCodec[V any] struct {
	encode func(V) ([]byte, error)
	decode func([]byte) (V, error)
}

func (c funcCodec[V]) Encode(v V) ([]byte, error)    { return c.encode(v) }
func (c funcCodec[V]) Decode(data []byte) (V, error) { return c.decode(data) }

// careful makes of a codec that panics one that fails: it runs in goroutines of the mesh, where a panic would end the process.
func careful[V any](c Codec[V]) Codec[V] {
	return funcCodec[V]{
		encode: func(v V) (data []byte, err error) { defer caught(&err); return c.Encode(v) },
		decode: func(data []byte) (v V, err error) { defer caught(&err); return c.Decode(data) },
	}
}

func caught(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("onefill: the codec panicked: %v", r)
	}
}

// defaultCodec picks protocol buffers, then encoding.BinaryMarshaler, else JSON.
func defaultCodec[V any]() Codec[V] {
	t := reflect.TypeFor[V]()
	if t.Kind() == reflect.Pointer && protobytes.Is(reflect.Zero(t).Interface()) {
		return protoCodec[V](t)
	}
	if isBinary(t) {
		return binaryCodec[V](t)
	}
	return funcCodec[V]{
		encode: func(v V) ([]byte, error) { return json.Marshal(v) },
		decode: func(data []byte) (v V, err error) { return v, json.Unmarshal(data, &v) },
	}
}

// protoCodec encodes protocol buffers. A nil pointer is the single byte 0, which no message begins with.
func protoCodec[V any](t reflect.Type) Codec[V] {
	return funcCodec[V]{
		encode: func(v V) ([]byte, error) {
			if reflect.ValueOf(v).IsNil() {
				return []byte{0}, nil
			}
			return protobytes.Marshal(v)
		},
		decode: func(data []byte) (v V, err error) {
			if len(data) == 1 && data[0] == 0 {
				return v, nil
			}
			v = reflect.New(t.Elem()).Interface().(V)
			return v, protobytes.Unmarshal(data, v)
		},
	}
}

// isBinary reports whether t or, for a value type, a pointer to it has both halves of encoding's binary interfaces. Types that json handles by itself and
// that happen to have them, such as time.Time, are among them.
func isBinary(t reflect.Type) bool {
	pointer := t
	if t.Kind() != reflect.Pointer {
		pointer = reflect.PointerTo(t)
	}
	return pointer.Implements(reflect.TypeFor[encoding.BinaryMarshaler]()) && pointer.Implements(reflect.TypeFor[encoding.BinaryUnmarshaler]())
}

// binaryCodec uses the type's own methods. For a pointer type the first byte says whether it is nil.
func binaryCodec[V any](t reflect.Type) Codec[V] {
	if t.Kind() != reflect.Pointer {
		return funcCodec[V]{
			encode: func(v V) ([]byte, error) { return any(&v).(encoding.BinaryMarshaler).MarshalBinary() },
			decode: func(data []byte) (v V, err error) {
				return v, any(&v).(encoding.BinaryUnmarshaler).UnmarshalBinary(data)
			},
		}
	}
	return funcCodec[V]{
		encode: func(v V) ([]byte, error) {
			if reflect.ValueOf(v).IsNil() {
				return []byte{0}, nil
			}
			data, err := any(v).(encoding.BinaryMarshaler).MarshalBinary()
			return append([]byte{1}, data...), err
		},
		decode: func(data []byte) (v V, err error) {
			if len(data) == 0 {
				return v, errors.New("no byte that says whether the pointer is nil")
			}
			if data[0] == 0 {
				return v, nil
			}
			v = reflect.New(t.Elem()).Interface().(V)
			return v, any(v).(encoding.BinaryUnmarshaler).UnmarshalBinary(data[1:])
		},
	}
}

// batchOf returns the group's loader of many keys, without its type.
func batchOf[V any](set *settings) (func(context.Context, []string) (map[string]any, error), error) {
	if set.loadBatch == nil {
		return nil, nil
	}
	load, ok := set.loadBatch.(func(context.Context, []string) (map[string]V, error))
	if !ok {
		return nil, fmt.Errorf("LoadBatch(%T): want a loader of %s", set.loadBatch, reflect.TypeFor[V]())
	}
	if load == nil {
		return nil, errors.New("LoadBatch(nil): want a loader")
	}
	return func(ctx context.Context, keys []string) (map[string]any, error) {
		typed, err := load(ctx, keys)
		values := make(map[string]any, len(typed))
		for key, v := range typed {
			values[key] = v
		}
		return values, err
	}, nil
}
