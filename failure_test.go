// What happens when a loader or a codec fails: who hears of it, in which words, and that nothing stays stuck.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// Contract: R6
func TestLoaderThatDiesGivesEveryWaiterATypedErrorAndTheNextGetLoads(t *testing.T) {
	cause := errors.New("of the loader")
	for name, die := range map[string]func(){
		"panic":           func() { panic("boom") },
		"panic(error)":    func() { panic(cause) },
		"panic(nil)":      func() { panic(nil) },
		"runtime.Goexit":  runtime.Goexit,
		"nil dereference": func() { var u *user; _ = u.Name },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, 2)
				loads := 0
				groups := inAll(t, all, "users", func(context.Context, string) (string, error) {
					loads++
					time.Sleep(slow)
					if loads == 1 {
						die()
					}
					return "value", nil
				})
				key := keyOf(all[1], "users")
				results := together(50, func(i int) (string, error) { return groups[i%2].Get(t.Context(), key) })
				for i, r := range results {
					var panicked *onefill.PanicError
					if !errors.As(r.err, &panicked) {
						t.Fatalf("caller %d: %+v", i, r)
					}
					if want := []string{all[1].url, ""}[i%2]; panicked.Peer != want || panicked.Group != "users" {
						t.Errorf("caller %d: it happened at %q in group %q", i, panicked.Peer, panicked.Group)
					}
					if !strings.Contains(panicked.Stack, "TestLoaderThatDies") {
						t.Errorf("caller %d: no stack of the loader: %s", i, panicked.Stack)
					}
					if goexit := name == "runtime.Goexit"; (panicked.Value == nil) != goexit {
						t.Errorf("caller %d: the value %v", i, panicked.Value)
					}
					if i%2 == 1 && name == "panic(error)" && !errors.Is(r.err, cause) {
						t.Errorf("caller %d: the error that was thrown is not in %v", i, r.err)
					}
				}
				if loads != 1 {
					t.Errorf("%d loads for the panic", loads)
				}
				for i, g := range groups {
					if v, err := g.Get(t.Context(), key); v != "value" || err != nil {
						t.Errorf("process %d after the panic: %q, %v", i, v, err)
					}
				}
				if s := groups[1].Stats(); s.Panics != 1 || s.LoadErrors != 1 || s.Loads != 2 {
					t.Errorf("counted %+v", s)
				}
			})
		})
	}
}

// Contract: R6
func TestPanicInABatchReachesAllItsKeys(t *testing.T) {
	m := newMesh(t, onefill.Config{})
	db := &countingSource{}
	g := newGroup(t, m, "users", db.load, onefill.LoadBatch(func(context.Context, []string) (map[string]string, error) { panic("boom") }))
	values, err := g.GetMulti(t.Context(), []string{"a", "b"})
	var panicked *onefill.PanicError
	if len(values) != 0 || !errors.As(err, &panicked) || strings.Count(err.Error(), "boom") < 2 {
		t.Errorf("%v, %v", values, err)
	}
	if v, err := g.Get(t.Context(), "a"); v != "a/1" || err != nil {
		t.Errorf("a Get after the panic: %q, %v", v, err)
	}
}

// Contract: R7
func TestLoadersErrorReachesAllWaitersAndCausesNoSecondLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 3)
		cause := errors.New("the database is down")
		db := &countingSource{took: slow}
		db.fail(fmt.Errorf("query: %w", cause))
		groups := inAll(t, all, "users", db.load)
		key := keyOf(all[0], "users")
		for i, r := range together(30, func(i int) (string, error) { return groups[i%3].Get(t.Context(), key) }) {
			var load *onefill.LoadError
			switch {
			case i%3 == 0 && !errors.Is(r.err, cause):
				t.Errorf("caller %d where it was loaded: %v", i, r.err)
			case i%3 != 0 && !errors.As(r.err, &load):
				t.Errorf("caller %d elsewhere: %v", i, r.err)
			case i%3 != 0 && (load.Peer != all[0].url || load.Group != "users" || load.Text != "query: the database is down"):
				t.Errorf("caller %d elsewhere: %+v", i, load)
			}
		}
		if n := db.total(); n != 1 {
			t.Errorf("%d loads", n)
		}
		db.fail(nil)
		if v, err := groups[1].Get(t.Context(), key); v != key+"/2" || err != nil {
			t.Errorf("one who came later: %q, %v", v, err)
		}
	})
}

// Contract: R7
func TestNotFoundIsNotFoundInEveryProcess(t *testing.T) {
	for name, load := range map[string]onefill.Loader[string]{
		"returned": func(context.Context, string) (string, error) { return "", onefill.ErrNotFound },
		"wrapped":  func(context.Context, string) (string, error) { return "", fmt.Errorf("row: %w", onefill.ErrNotFound) },
		"said":     func(ctx context.Context, _ string) (string, error) { onefill.FillFrom(ctx).NotFound(); return "x", nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := newMeshes(t, 2)
				loads := 0
				groups := inAll(t, all, "users", func(ctx context.Context, key string) (string, error) { loads++; return load(ctx, key) })
				for i, g := range groups {
					if v, err := g.Get(t.Context(), "key"); v != "" || !errors.Is(err, onefill.ErrNotFound) {
						t.Errorf("process %d: %q, %v", i, v, err)
					}
				}
				if loads != 2 {
					t.Errorf("%d loads: without NotFoundTTL it is not remembered", loads)
				}
				for i, p := range all {
					if text := p.log.text(); text != "" {
						t.Errorf("process %d logged %s", i, text)
					}
				}
			})
		})
	}
}

// Contract: R7
func TestErrorsOfThisPackageKeepTheirNameAcrossProcesses(t *testing.T) {
	for _, sentinel := range []error{onefill.ErrRecursion, onefill.ErrLoadTimeout, onefill.ErrKeyTooLong} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 2)
			groups := inAll(t, all, "users", func(context.Context, string) (string, error) { return "", sentinel })
			_, err := groups[0].Get(t.Context(), keyOf(all[1], "users"))
			var load *onefill.LoadError
			if !errors.Is(err, sentinel) || !errors.As(err, &load) {
				t.Errorf("%v became %v", sentinel, err)
			}
		})
	}
}

// sealed is a value that its codec cannot encode.
type sealed struct{ Name string }

var errSealed = errors.New("sealed")

func (sealed) MarshalJSON() ([]byte, error) { return nil, errSealed }

// Contract: R13
func TestValueThatCannotBeEncodedReachesTheCallersOfItsProcessOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		loads := 0
		groups := inAll(t, all, "users", func(context.Context, string) (sealed, error) {
			loads++
			time.Sleep(slow)
			return sealed{"a"}, nil
		})
		key := keyOf(all[0], "users")
		together(4, func(i int) (string, error) {
			v, err := groups[i%2].Get(t.Context(), key)
			var encode *onefill.EncodeError
			switch {
			case i%2 == 0 && (v.Name != "a" || err != nil):
				t.Errorf("where it was loaded: %v, %v", v, err)
			case i%2 == 1 && (!errors.As(err, &encode) || encode.Peer != all[0].url || encode.Group != "users"):
				t.Errorf("elsewhere: %v, %v", v, err)
			}
			return "", nil
		})
		if loads != 1 {
			t.Errorf("%d loads", loads)
		}
		if _, ok := groups[0].Peek(key); ok {
			t.Error("it was cached")
		}
		if n := groups[0].Stats().EncodeErrors; n != 1 || !strings.Contains(all[0].log.text(), "cannot be encoded") {
			t.Errorf("counted %d times and logged %q", n, all[0].log.text())
		}
		if err := groups[1].Set(t.Context(), key, sealed{}); !errors.As(err, new(*onefill.EncodeError)) || !errors.Is(err, errSealed) {
			t.Errorf("Set: %v", err)
		}
	})
}

// explosive is a codec that panics.
type explosive struct{ encoding bool }

func (c explosive) Encode(string) ([]byte, error) {
	if c.encoding {
		panic("boom")
	}
	return []byte("x"), nil
}
func (c explosive) Decode([]byte) (string, error) { panic("boom") }

// Contract: R13
func TestCodecThatPanicsIsACodecThatFails(t *testing.T) {
	for _, codec := range []explosive{{true}, {false}} {
		m := newMesh(t, onefill.Config{})
		g := newGroup(t, m, "users", func(context.Context, string) (string, error) { return "value", nil }, onefill.WithCodec[string](codec))
		if v, err := g.Get(t.Context(), "key"); v != "value" || err != nil {
			t.Errorf("%+v: %q, %v", codec, v, err)
		}
		if n := g.Stats().EncodeErrors; n != 1 {
			t.Errorf("%+v: counted %d times", codec, n)
		}
		copies := newGroup(t, m, "copies", func(context.Context, string) (string, error) { return "value", nil }, onefill.WithCodec[string](codec), onefill.Copy())
		if v, err := copies.Get(t.Context(), "key"); v != "value" || err != nil {
			t.Errorf("%+v with Copy: %q, %v", codec, v, err)
		}
	}
}

// picky encodes everything and decodes nothing that it has not encoded itself.
type picky struct{ name string }

func (c picky) Encode(v string) ([]byte, error) { return []byte(c.name + v), nil }
func (c picky) Decode(data []byte) (string, error) {
	v, ok := strings.CutPrefix(string(data), c.name)
	if !ok {
		return "", errors.New("not mine")
	}
	return v, nil
}

// Contract: R7
func TestPeersValueThatCannotBeDecodedIsLoadedHereAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newMeshes(t, 2)
		db := &countingSource{}
		a := newGroup(t, all[0].mesh, "users", db.load, onefill.WithCodec[string](picky{"a"}))
		newGroup(t, all[1].mesh, "users", db.load, onefill.WithCodec[string](picky{"b"}))
		key := keyOf(all[1], "users")
		if v, err := a.Get(t.Context(), key); v != key+"/2" || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		if n := a.Stats().DecodeErrors; n != 1 || !strings.Contains(all[0].log.text(), "cannot be decoded") {
			t.Errorf("counted %d times and logged %q", n, all[0].log.text())
		}
	})
}

// A loader may use this package itself and return what that said. It is the loader's error all the same, not news of the process that ran the loader.
//
// Contract: R7, P14
func TestLoadersErrorThatWrapsOneOfThisPackageCausesNoSecondLoad(t *testing.T) {
	for _, sentinel := range []error{onefill.ErrClosed, onefill.ErrOverloaded} {
		synctest.Test(t, func(t *testing.T) {
			all := newMeshes(t, 4)
			db := &countingSource{}
			db.fail(fmt.Errorf("profile: %w", sentinel))
			groups := inAll(t, all, "users", db.load)
			key := keyOf(all[0], "users")
			for i, g := range groups {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				_, err := g.Get(ctx, key)
				cancel()
				if err == nil || errors.Is(err, context.DeadlineExceeded) || db.total() != i+1 {
					t.Errorf("%v, process %d: %v after %d loads", sentinel, i, err, db.total())
				}
			}
			time.Sleep(time.Minute)
			if n := db.total(); n != len(groups) {
				t.Errorf("%v: a minute later there are %d loads", sentinel, n)
			}
		})
	}
}
