package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/onefill/onefill/internal/lease"
)

func TestTheTurnGoesRoundInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q lease.Queue
		first, err := q.Enter(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 5 {
			all.Go(func() {
				turn, err := q.Enter(context.Background(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				turn.Leave()
				turn.Leave() // which takes nobody else's turn
			})
			synctest.Wait()
		}
		other, _ := q.TryEnter("another")
		if other == nil {
			t.Fatal("another name waits")
		}
		first.Leave()
		all.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
			t.Fatalf("order %v", order)
		}
		again, held := q.TryEnter("n")
		if again == nil || held {
			t.Fatal("the turn is lost")
		}
	})
}

func TestAWaiterThatLeavesTheLineTakesNoTurnWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q lease.Queue
		for range 100 { // the turn comes and the context ends at the same moment, in either order
			first, _ := q.TryEnter("n")
			ctx, cancel := context.WithCancel(t.Context())
			entered := make(chan *lease.Turn, 1)
			go func() {
				turn, _ := q.Enter(ctx, "n")
				entered <- turn
			}()
			synctest.Wait()
			go cancel()
			go first.Leave()
			(<-entered).Leave()
			synctest.Wait()
			again, _ := q.TryEnter("n")
			if again == nil {
				t.Fatal("the turn is lost")
			}
			again.Leave()
		}
	})
}

func TestAHolderSaysThatNobodyNeedsToAsk(t *testing.T) {
	var q lease.Queue
	turn, _ := q.TryEnter("n")
	if other, held := q.TryEnter("n"); other != nil || held {
		t.Fatal("held before Hold")
	}
	turn.Hold()
	if other, held := q.TryEnter("n"); other != nil || !held {
		t.Fatal("not held after Hold")
	}
}

func TestAFailureIsGivenToAllWhoWaitAndToNobodyLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q lease.Queue
		first, _ := q.TryEnter("n")
		errs := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := q.Enter(context.Background(), "n")
				errs <- err
			}()
		}
		synctest.Wait()
		failure := errors.New("failure")
		first.Fail(failure)
		for range 3 {
			if err := <-errs; err != failure {
				t.Fatal(err)
			}
		}
		turn, err := q.Enter(t.Context(), "n")
		if err != nil {
			t.Fatal(err)
		}
		turn.Leave()
		q.Shut(failure)
		if _, err := q.Enter(t.Context(), "n"); err != failure {
			t.Fatal(err)
		}
	})
}
