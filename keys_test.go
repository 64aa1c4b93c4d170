// Keys and names of any bytes, and that groups and namespaces share nothing.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/onefill/onefill"
	"github.com/onefill/onefill/peers"
)

// awkwardKeys are keys that have come out of other caches changed.
var awkwardKeys = []string{
	"", " ", "a b", "a+b", "a/b", "/lead", "a//b", "a/../b", ".", "..", "%2F", "%2E%2E", "ü", "日本", "\n", "\r\n", "\x00", "\xff\xfe", "?", "#",
	strings.Repeat("k", onefill.DefaultMaxKeyBytes),
}

// Contract: R11
func TestEveryKeyArrivesAtTheLoaderByteForByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{}
		for _, name := range awkwardKeys[1:] { // a group has a name
			if len(name) > 1024 {
				name = name[:1024]
			}
			groups := inAll(t, all, name, func(ctx context.Context, key string) (string, error) {
				_, err := db.load(ctx, name+"\x00\x00"+key)
				return key, err
			})
			for _, key := range awkwardKeys {
				for i, g := range groups {
					if v, err := g.Get(t.Context(), key); v != key || err != nil {
						t.Errorf("process %d, group %q, key %q: %q, %v", i, name, key, v, err)
					}
				}
				if n := db.loads(name + "\x00\x00" + key); n != 1 {
					t.Errorf("group %q, key %q: %d loads", name, key, n)
				}
			}
			values, err := groups[0].GetMulti(t.Context(), awkwardKeys)
			if len(values) != len(awkwardKeys) || err != nil {
				t.Errorf("group %q: GetMulti found %d of %d keys, %v", name, len(values), len(awkwardKeys), err)
			}
		}
	})
}

// Contract: I4, R11
func TestAwkwardKeysAreDeletedEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 3)
		db := &countingSource{}
		groups := inAll(t, all, "users", db.load)
		for _, g := range groups {
			if _, err := g.GetMulti(t.Context(), awkwardKeys); err != nil {
				t.Fatal(err)
			}
		}
		if err := groups[0].Delete(t.Context(), awkwardKeys...); err != nil {
			t.Error(err)
		}
		for i, g := range groups {
			for _, key := range awkwardKeys {
				if _, ok := g.Peek(key); ok {
					t.Errorf("process %d still has %q", i, key)
				}
			}
		}
	})
}

// Contract: R19
func TestGroupsShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		fail := errors.New("of b alone")
		slowly := &countingSource{took: slow}
		a := inAll(t, all, "a", slowly.load)
		b := inAll(t, all, "b", func(context.Context, string) (string, error) { return "", fail })
		c := inAll(t, all, "c", func(_ context.Context, key string) (string, error) { return "c of " + key, nil })
		results := together(3, func(i int) (string, error) {
			return [][]*onefill.Group[string]{a, b, c}[i][0].Get(t.Context(), "key")
		})
		if results[0].value != "key/1" || results[1].err == nil || results[2].value != "c of key" || results[2].after >= slow {
			t.Errorf("%+v", results)
		}
		if err := errors.Join(c[0].Delete(t.Context(), "key"), c[0].Close()); err != nil {
			t.Error(err)
		}
		if v, ok := a[0].Peek("key"); v != "key/1" || !ok {
			t.Errorf("after another group's Delete and Close: %q, %t", v, ok)
		}
		if s := all[0].mesh.Stats(); s.Groups["a"].Entries != 1 || s.Groups["b"].LoadErrors+s.Groups["b"].Loads > 2 {
			t.Errorf("%+v", s.Groups)
		}
	})
}

// A chain of loaders names its keys with their groups: the same key of another group is no recursion.
//
// Contract: R9, R19
func TestSameKeyOfAnotherGroupIsNoRecursion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		var groups [3][]*onefill.Group[string]
		for i := range groups {
			groups[i] = inAll(t, all, fmt.Sprint("group ", i), func(ctx context.Context, key string) (string, error) {
				if i == 2 {
					return "end", nil
				}
				return groups[i+1][0].Get(ctx, key)
			})
		}
		if v, err := groups[0][0].Get(t.Context(), "key"); v != "end" || err != nil {
			t.Error(v, err)
		}
		for i, g := range groups {
			if a, b := g[0].Stats(), g[1].Stats(); a.Loads+b.Loads != 1 {
				t.Errorf("group %d: %d loads", i, a.Loads+b.Loads)
			}
		}
	})
}

// Contract: O2
func TestNamespacesShareNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := newNetwork()
		src := peers.Static(urlOf(0), urlOf(1))
		shop := newProcess(t, net, 0, src, onefill.Config{Namespace: "shop"})
		bank := newProcess(t, net, 1, src, onefill.Config{Namespace: "bank"})
		for name, p := range map[string]*process{"shop": shop, "bank": bank} {
			g := newGroup(t, p.mesh, "users", func(context.Context, string) (string, error) { return name, nil })
			for _, owner := range []*process{shop, bank} {
				if v, err := g.Get(t.Context(), keyOf(owner, "users")); v != name || err != nil {
					t.Errorf("a process of %q got %q, %v", name, v, err)
				}
			}
		}
		if text := shop.log.text(); !strings.Contains(text, `"bank"`) && !strings.Contains(text, "bank") {
			t.Errorf("nothing says that %q is of another namespace: %s", bank.url, text)
		}
	})
}
