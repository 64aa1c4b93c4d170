// Tests of how a reported set becomes members.

package peers

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// Contract: P1, P6
func TestMembersAreNormalisedAndCountOnce(t *testing.T) {
	got, err := members("http", []Peer{
		{URL: "HTTP://B.example:7946/"}, {URL: "//10.0.0.1:7946"}, {URL: "http://b.example.:7946"}, {URL: "http://[::ffff:10.0.0.1]:7946"},
	})
	want := []Peer{{ID: "http://b.example:7946", URL: "http://b.example:7946"}, {ID: "http://10.0.0.1:7946", URL: "http://10.0.0.1:7946"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("members are %v, %v", got, err)
	}
}

// Contract: P6
func TestLaterIncarnationOfAMemberCountsInAnyOrder(t *testing.T) {
	old, young := Peer{ID: "a", URL: "http://10.0.0.1:80", Incarnation: 1}, Peer{ID: "a", URL: "http://10.0.0.2:80", Incarnation: 2}
	for _, set := range [][]Peer{{old, young}, {young, old}} {
		if got, err := members("http", set); err != nil || len(got) != 1 || got[0] != young {
			t.Errorf("of %v remain %v, %v", set, got, err)
		}
	}
}

func TestUnusableMemberIsNamedAndTheOthersStay(t *testing.T) {
	got, err := members("https", []Peer{
		{URL: "https://10.0.0.1:7946"}, {URL: "https://10.0.0.2:7946/cache"}, {URL: "http://10.0.0.3:7946"},
		{ID: "x", URL: "https://10.0.0.4:7946"}, {ID: "x", URL: "https://10.0.0.5:7946"},
	})
	if len(got) != 2 || got[0].ID != "https://10.0.0.1:7946" || got[1].URL != "https://10.0.0.4:7946" {
		t.Errorf("members are %v", got)
	}
	for _, want := range []string{`"https://10.0.0.2:7946/cache" has a path`, `"http://10.0.0.3:7946" is not https`, `"x" is listed at "https://10.0.0.4:7946" and at "https://10.0.0.5:7946"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestNilSourceIsRefused(t *testing.T) {
	if _, err := prepare(nil, surroundings{}); err == nil || !strings.Contains(err.Error(), "source") {
		t.Errorf("error is %v", err)
	}
}

type foreignSource struct{}

func (foreignSource) Watch(context.Context, func([]Peer)) error { return nil }

func TestForeignSourceIsWatchedAsItIs(t *testing.T) {
	src, err := prepare(foreignSource{}, surroundings{})
	if _, only := src.(addressSource); err != nil || only {
		t.Errorf("it became %v, %v", src, err)
	}
}
