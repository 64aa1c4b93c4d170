// Tests of the fixed list.

package peers

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
)

// Contract: P6
func TestFixedListWithoutThisProcessIsAnErrorThatNamesTheLikelySpelling(t *testing.T) {
	for _, c := range []struct{ self, list, hint string }{
		{"http://127.0.0.1:7946", "http://localhost:7946", "both are this host"},
		{"http://127.0.0.1:7946", "http://[::1]:7946", "both are this host"},
		{"http://10.0.0.3:7946", "http://localhost:7946", "by its own name"},
		{"http://node:7946", "http://node:7947", "another port"},
		{"http://node:7946", "http://node", "another port"},
		{"http://node:7946", "http://node.example.com:7946", "domain"},
	} {
		_, err := prepare(Static("http://10.9.9.9:7946", "http://127.0.0.1:1", c.list), surroundings{self: c.self, scheme: "http"})
		if err == nil || !strings.Contains(err.Error(), c.hint) || !strings.Contains(err.Error(), c.self) || !strings.Contains(err.Error(), c.list) {
			t.Errorf("%s in a list with %s: %v", c.self, c.list, err)
		}
	}
	_, err := prepare(Static("http://10.9.9.9:7946"), surroundings{self: "http://10.0.0.3:7946", scheme: "http"})
	if err == nil || strings.Contains(err.Error(), "could be") {
		t.Errorf("a list of strangers: %v", err)
	}
}

// Contract: P6
func TestFixedListKnowsThisProcessInAnySpellingOfItsURL(t *testing.T) {
	for _, listed := range []string{"http://Node:7946", "HTTP://node:7946/", "http://node.:7946", "http://node:07946"} {
		src, err := prepare(Static("http://other:7946", listed), surroundings{self: "http://node:7946", scheme: "http"})
		if err != nil {
			t.Errorf("%s: %v", listed, err)
		} else if fixed := src.(fixedSource).fixed(); len(fixed) != 2 || fixed[1].ID != "http://node:7946" {
			t.Errorf("%s: members are %v", listed, fixed)
		}
	}
}

func TestGuestNeedNotBeInTheFixedList(t *testing.T) {
	if _, err := prepare(Static("http://node:7946"), surroundings{scheme: "http", guest: true}); err != nil {
		t.Error(err)
	}
}

func TestWrongEntryOfTheFixedListIsNamed(t *testing.T) {
	for url, want := range map[string]string{"http://node:7946/x": "has a path", "http://node:7946": "not https"} {
		_, err := prepare(Static("https://self:1", url), surroundings{self: "https://self:1", scheme: "https"})
		if err == nil || !strings.Contains(err.Error(), url) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", url, err)
		}
	}
	if _, err := prepare(Static(), surroundings{scheme: "https", guest: true}); err == nil {
		t.Error("an empty list passed")
	}
}

func TestFixedListIsToldOnceAndWatchedUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sets, done := 0, make(chan error, 1)
		go func() { done <- Static("http://node:7946").Watch(ctx, func(p []Peer) { sets += len(p) }) }()
		synctest.Wait()
		if sets != 1 || len(done) != 0 {
			t.Errorf("%d members were told, Watch ended %d times", sets, len(done))
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("Watch returned %v", err)
		}
	})
}
