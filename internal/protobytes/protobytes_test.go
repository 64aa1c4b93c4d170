package protobytes_test

// Messages become bytes and come back; whatever is none is an error.

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/onefill/onefill/internal/protobytes"
)

func TestMessageComesBackAsItWas(t *testing.T) {
	for _, text := range []string{"", "a", strings.Repeat("long", 1000)} {
		data, err := protobytes.Marshal(wrapperspb.String(text))
		if err != nil {
			t.Fatal(err)
		}
		var back wrapperspb.StringValue
		if err := protobytes.Unmarshal(data, &back); err != nil || !proto.Equal(&back, wrapperspb.String(text)) {
			t.Errorf("%d bytes came back as %d, %v", len(text), len(back.Value), err)
		}
	}
}

func TestWhatIsNoMessageIsAnError(t *testing.T) {
	for _, v := range []any{nil, 1, "text", struct{}{}, wrapperspb.StringValue{}} {
		if protobytes.Is(v) {
			t.Errorf("%T is taken for a message", v)
		}
		if _, err := protobytes.Marshal(v); err == nil || !strings.HasPrefix(err.Error(), "protobytes: ") {
			t.Errorf("Marshal(%T): %v", v, err)
		}
		if err := protobytes.Unmarshal(nil, v); err == nil {
			t.Errorf("Unmarshal into %T succeeded", v)
		}
	}
	if !protobytes.Is(wrapperspb.String("")) || !protobytes.Is((*wrapperspb.StringValue)(nil)) {
		t.Error("a message is not taken for one")
	}
	if err := protobytes.Unmarshal([]byte{0xff}, wrapperspb.String("")); err == nil {
		t.Error("broken bytes were read")
	}
}
