// What a group and a mesh without peers do with loads that are under way when they are closed. How a process leaves its pool is tested beside membership.

package onefill_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onefill/onefill"
)

// Contract: P10
func TestCloseDoesNotWaitForCallersThatKeepComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{took: 10 * time.Millisecond}
		g := newGroup(t, m, "users", src.load)
		var callers sync.WaitGroup
		for c := range 50 {
			callers.Go(func() {
				for i := 0; ; i++ {
					time.Sleep(time.Duration(c+1) * time.Millisecond)
					if _, err := g.Get(context.Background(), fmt.Sprint(c, "-", i)); errors.Is(err, onefill.ErrClosed) {
						return
					} else if err != nil {
						t.Errorf("caller %d: %v", c, err)
					}
				}
			})
		}
		time.Sleep(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		began := time.Now()
		if err := m.Close(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		callers.Wait()
	})
}

// Contract: P10
func TestCloseAnswersThoseWhoseLoadWasInvalidated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{took: time.Second}
		g := newGroup(t, m, "users", src.load)
		early := leaves(g, "key", time.Minute)
		time.Sleep(100 * time.Millisecond)
		if err := g.Delete(t.Context(), "key"); err != nil {
			t.Fatal(err)
		}
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-early; err != nil {
			t.Errorf("a caller from before the Delete and the Close: %v", err)
		}
	})
}

func TestClosedGroupKeepsNothingOfALoadThatWasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, onefill.Config{})
		src := &countingSource{took: time.Second}
		g := newGroup(t, m, "users", src.load)
		early := leaves(g, "key", time.Minute)
		time.Sleep(100 * time.Millisecond)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		<-early
		time.Sleep(5 * time.Second)
		if v, err := g.Get(t.Context(), "key"); !errors.Is(err, onefill.ErrClosed) {
			t.Errorf("%q, %v", v, err)
		}
		if n := m.Stats().Bytes; n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}
