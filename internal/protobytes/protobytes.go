// Package protobytes encodes protocol buffers for the default codec, so that the root package imports nobody's code but its own.
package protobytes

import (
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Is reports whether v is a protocol buffer message.
func Is(v any) bool {
	_, ok := v.(proto.Message)
	return ok
}

// Marshal returns v's wire format.
func Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("protobytes: %T is no message", v)
	}
	return proto.Marshal(m)
}

// Unmarshal reads data into v.
func Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("protobytes: %T is no message", v)
	}
	return proto.Unmarshal(data, m)
}
